// SPDX-License-Identifier: Apache-2.0
#include "model/load_model.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/page_buffer.h"
#include "common/thread_pool.h"
#include "model/mapped_file.h"

#include <spdlog/spdlog.h>

#include <functional>
#include <span>
#include <utility>

namespace rift::model {
namespace {

std::vector<kernels::WeightView*> matrices(Weights& w) {
  std::vector<kernels::WeightView*> out{&w.embedding};
  for (LayerWeights& layer : w.layers) {
    for (kernels::WeightView* view :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      out.push_back(view);
    }
  }
  if (!w.config.tied_embeddings) {
    out.push_back(&w.output);
  }
  return out;
}

std::span<const std::byte> in_file(const kernels::WeightView& w) {
  return {w.data, static_cast<std::size_t>(w.rows) * row_bytes(w.dtype, w.cols)};
}

void prefault(std::span<const std::byte> part, ThreadPool& pool) {
  constexpr std::int64_t kSlice = 4 << 20;
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    populate_pages(
        part.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  };
  pool.parallel_for(std::ssize(part), kSlice, std::ref(body));
}

/// Makes the matrices ready in turn; the next one is on its way from the disk meanwhile.
class Preparation {
 public:
  Preparation(Weights& weights, const LoadOptions& options, LoadSeconds& seconds)
      : weights_(weights),
        options_(options),
        seconds_(seconds),
        pool_(options.threads, options.cpus) {}

  void run() {
    const std::vector<kernels::WeightView*> all = matrices(weights_);
    std::uint64_t total = 0;
    std::size_t packed = 0;
    for (const kernels::WeightView* view : all) {
      total += in_file(*view).size();
      packed += packed_bytes(*view);
    }
    PageBuffer memory(packed);
    std::byte* out = memory.bytes().data();
    bool whole = true;  // nothing is left in the file
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i + 1 < all.size()) {
        prefetch_pages(in_file(*all[i + 1]));
      }
      const std::size_t bytes = packed_bytes(*all[i]);
      done += in_file(*all[i]).size();
      prepare(*all[i], bytes, out);
      whole = whole && bytes > 0;
      out += bytes;
      if (options_.on_progress) {
        options_.on_progress(done, total);
      }
    }
    if (packed > 0) {
      // The file stays open only for what is still read from it.
      weights_.storage = std::make_shared<std::pair<PageBuffer, std::shared_ptr<const void>>>(
          std::move(memory), whole ? nullptr : weights_.storage);
    }
    if (weights_.config.tied_embeddings) {
      weights_.output = weights_.embedding;
    }
  }

 private:
  [[nodiscard]] std::size_t packed_bytes(const kernels::WeightView& view) const {
    return options_.repack ? kernels::packed_bytes(view) : 0;
  }

  void prepare(kernels::WeightView& view, std::size_t bytes, std::byte* out) {
    const std::span<const std::byte> from = in_file(view);
    const TimePoint begin = Clock::now();
    prefault(from, pool_);
    const TimePoint resident = Clock::now();
    seconds_.prefault += seconds_between(begin, resident);
    if (bytes > 0) {
      view = kernels::pack(view, out, pool_);
      weights_.bytes += bytes - from.size();
      release_pages(from);
      seconds_.pack += seconds_between(resident, Clock::now());
    }
  }

  Weights& weights_;
  const LoadOptions& options_;
  LoadSeconds& seconds_;
  ThreadPool pool_;
};

}  // namespace

LoadedModel load_model(const std::filesystem::path& path, const LoadOptions& options) {
  LoadedModel out;
  const TimePoint begin = Clock::now();
  auto weights = std::make_shared<Weights>(*load_weights(path));
  out.seconds.open = seconds_between(begin, Clock::now());
  Preparation(*weights, options, out.seconds).run();
  log().info("{}: {} MB of weights; opened in {:.2f} s, read in {:.2f} s, packed in {:.2f} s",
             path.filename().string(),
             weights->bytes / 1'000'000,
             out.seconds.open,
             out.seconds.prefault,
             out.seconds.pack);
  out.weights = std::move(weights);
  return out;
}

}  // namespace rift::model
