// SPDX-License-Identifier: Apache-2.0
#include "cli/eval_progress.h"

#include <fmt/format.h>

#include <string>

namespace rift::cli {

void EvalProgress::show(std::string_view what,
                        std::size_t done,
                        std::size_t total,
                        double seconds) {
  measured_ += seconds > 0.0 ? 1 : 0;
  constexpr std::size_t kWidth = 30;
  const std::size_t filled = kWidth * done / total;
  std::string left;
  if (measured_ > 0) {
    const double each = seconds_between(began_, Clock::now()) / static_cast<double>(measured_);
    const auto rest = static_cast<long>(each * static_cast<double>(total - done));
    left = fmt::format(", {}:{:02} min left", rest / 60, rest % 60);
  }
  line_.show(fmt::format(" {}[{}{}] {} of {} measurements{}",
                         what,
                         std::string(filled, '#'),
                         std::string(kWidth - filled, '.'),
                         done,
                         total,
                         left));
}

}  // namespace rift::cli
