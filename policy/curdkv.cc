// SPDX-License-Identifier: Apache-2.0
#include "policy/curdkv.h"

#include "common/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace rift::policy {
namespace {

/// A symmetric matrix [n, n] and its eigenvectors, by cyclic Jacobi rotations.
class SymmetricEigen {
 public:
  SymmetricEigen(std::vector<double> matrix, std::size_t n)
      : n_(n), a_(std::move(matrix)), vectors_(n * n) {
    for (std::size_t i = 0; i < n; ++i) {
      vectors_[i * n + i] = 1.0;
    }
    // Converges quadratically once it is nearly diagonal; 30 sweeps are far more than are needed.
    for (int sweep = 0; sweep < 30 && off_diagonal() > 1e-30 * diagonal(); ++sweep) {
      for (std::size_t p = 0; p < n; ++p) {
        for (std::size_t q = p + 1; q < n; ++q) {
          rotate(p, q);
        }
      }
    }
  }

  [[nodiscard]] double value(std::size_t i) const { return a_[i * n_ + i]; }
  /// Component d of eigenvector i.
  [[nodiscard]] double vector(std::size_t d, std::size_t i) const { return vectors_[d * n_ + i]; }

 private:
  [[nodiscard]] double off_diagonal() const {
    double sum = 0.0;
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < n_; ++j) {
        sum += i == j ? 0.0 : a_[i * n_ + j] * a_[i * n_ + j];
      }
    }
    return sum;
  }
  [[nodiscard]] double diagonal() const {
    double sum = 0.0;
    for (std::size_t i = 0; i < n_; ++i) {
      sum += value(i) * value(i);
    }
    return sum;
  }
  /// Makes a[p, q] zero.
  void rotate(std::size_t p, std::size_t q) {
    const double apq = a_[p * n_ + q];
    if (apq == 0.0) {
      return;
    }
    const double theta = (value(q) - value(p)) / (2.0 * apq);
    const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
    const double c = 1.0 / std::hypot(t, 1.0);
    const double s = t * c;
    const auto turn = [c, s](double& x, double& y) {
      const double before = x;
      x = c * before - s * y;
      y = s * before + c * y;
    };
    for (std::size_t k = 0; k < n_; ++k) {
      turn(a_[k * n_ + p], a_[k * n_ + q]);
    }
    for (std::size_t k = 0; k < n_; ++k) {
      turn(a_[p * n_ + k], a_[q * n_ + k]);
    }
    for (std::size_t k = 0; k < n_; ++k) {
      turn(vectors_[k * n_ + p], vectors_[k * n_ + q]);
    }
  }

  std::size_t n_;
  std::vector<double> a_;
  std::vector<double> vectors_;
};

std::vector<double> gram_matrix(MatView<const float> x) {
  const auto n = static_cast<std::size_t>(x.cols);
  std::vector<double> gram(n * n);
  for (std::int64_t j = 0; j < x.rows; ++j) {
    const float* row = x.row(j);
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) {
        gram[a * n + b] += static_cast<double>(row[a]) * static_cast<double>(row[b]);
      }
    }
  }
  return gram;
}

}  // namespace

void curdkv_scores(std::span<const float> key_leverage,
                   std::span<const float> value_leverage,
                   std::span<float> out) {
  RIFT_CHECK(key_leverage.size() == value_leverage.size() && key_leverage.size() == out.size(),
             "leverages [{}] and [{}], out [{}]",
             key_leverage.size(),
             value_leverage.size(),
             out.size());
  double sum = 0.0;
  for (std::size_t j = 0; j < out.size(); ++j) {
    sum += static_cast<double>(key_leverage[j]) * static_cast<double>(value_leverage[j]);
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    const double product =
        static_cast<double>(key_leverage[j]) * static_cast<double>(value_leverage[j]);
    out[j] = static_cast<float>(sum > 0.0 ? product / sum : 0.0);
  }
}

void normalise_in_blocks(std::span<float> leverage, std::int32_t block) {
  RIFT_CHECK(block >= 1, "block = {}", block);
  for (std::size_t begin = 0; begin < leverage.size(); begin += static_cast<std::size_t>(block)) {
    const std::span<float> part =
        leverage.subspan(begin, std::min(static_cast<std::size_t>(block), leverage.size() - begin));
    const double sum = std::accumulate(part.begin(), part.end(), 0.0);
    for (float& x : part) {
      x = static_cast<float>(sum > 0.0 ? static_cast<double>(x) / sum : 0.0);
    }
  }
}

std::vector<float> statistical_leverage(MatView<const float> x, std::int32_t rank) {
  RIFT_CHECK(rank >= 1 && rank <= x.cols, "rank {} of [{}, {}]", rank, x.rows, x.cols);
  const auto dim = static_cast<std::size_t>(x.cols);
  const SymmetricEigen eigen(gram_matrix(x), dim);
  std::vector<std::size_t> order(dim);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&eigen](std::size_t a, std::size_t b) {
    return eigen.value(a) > eigen.value(b);
  });
  // Below it, a direction is rounding alone.
  const double floor = eigen.value(order.front()) * 1e-12;
  std::vector<float> leverage(static_cast<std::size_t>(x.rows));
  for (std::int64_t j = 0; j < x.rows; ++j) {
    double sum = 0.0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(rank); ++r) {
      const std::size_t i = order[r];
      double projection = 0.0;
      for (std::size_t d = 0; d < dim; ++d) {
        projection += static_cast<double>(x.row(j)[d]) * eigen.vector(d, i);
      }
      sum += eigen.value(i) > floor ? projection * projection / eigen.value(i) : 0.0;
    }
    leverage[static_cast<std::size_t>(j)] = static_cast<float>(sum);
  }
  return leverage;
}

}  // namespace rift::policy
