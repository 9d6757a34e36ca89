#include "nmt_example/backend/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "nmt_example/backend/products.hpp"

namespace nmt {
namespace {

/// Products of the same kind whose batches differ a little are one row.
std::string name_of(const Work& work) {
  if (work.flops == 0) return std::string(work.operation);
  const auto about = [](std::int64_t n) { return std::bit_width(static_cast<std::uint64_t>(n)) / 2; };
  if (work.ta == Transpose::yes) {
    return fmt::format("product {}t {} {}", work.rows, work.cols, about(work.inner));
  }
  return fmt::format("product {} {} {} {}", about(work.rows), work.cols, work.inner,
                     work.tb == Transpose::yes ? "t" : "");
}

double memory_rate(Backend& backend) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t elements = std::int64_t{1} << 24;
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  const std::shared_ptr<void> from = backend.allocate(bytes), to = backend.allocate(bytes);
  const Tensor a(from.get(), 1, elements, elements, ddl::DataType::f32);
  const Tensor b(to.get(), 1, elements, elements, ddl::DataType::f32);
  double best = 0;
  for (int call = 0; call < 5; ++call) {
    const auto begin = Clock::now();
    backend.copy(a, b);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (call > 0) best = std::max(best, 2.0 * static_cast<double>(bytes) / seconds);
  }
  return best;
}

}  // namespace

void Profile::after(const Work& work) {
  if (!counts_) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  Total& total = totals_[name_of(work)];
  total.calls += 1;
  total.seconds += seconds;
  total.flops += work.flops;
  total.bytes += work.bytes;
  total.rows += static_cast<double>(work.rows);
  total.inner += static_cast<double>(work.inner);
  total.cols = work.cols;
  total.type = work.type;
  total.transposed = work.ta == Transpose::yes   ? ", first transposed"
                     : work.tb == Transpose::yes ? ", second transposed"
                                                 : "";
}

void Profile::count_step(double seconds) {
  if (counts_) {
    steps_ += 1;
    seconds_ += seconds;
  }
  uncounted_ = std::max(0, uncounted_ - 1);
  counts_ = false;
}

std::string Profile::report() {
  if (steps_ == 0) return "--profile: no step was counted; the first five are not\n";
  std::vector<std::pair<std::string, Total>> rows(totals_.begin(), totals_.end());
  std::ranges::sort(rows, std::greater(), [](const auto& row) { return row.second.seconds; });
  const double memory = memory_rate(inner());
  double flops = 0, best_seconds = 0, named = 0;
  std::string text = fmt::format("{:<46} {:>8} {:>9} {:>6} {:>8} {:>8} {:>7} {:>8}\n", "operation", "calls",
                                 "ms a step", "share", "GFLOP/s", "of GEMM", "GB/s", "of copy");
  for (const auto& [key, total] : rows) {
    named += total.seconds;
    const double ms = total.seconds / steps_ * 1e3;
    std::string name = key, rate = "", of_gemm = "";
    if (total.flops > 0) {
      const auto mean = [calls = total.calls](double sum) { return std::llround(sum / calls); };
      const double best = cpu::product_rate(mean(total.rows), total.cols, mean(total.inner), total.type);
      flops += total.flops;
      best_seconds += total.flops / best;
      name = fmt::format("product {} x {} x {}{}", mean(total.rows), total.cols, mean(total.inner),
                         total.transposed);
      rate = fmt::format("{:.1f}", total.flops / total.seconds * 1e-9);
      of_gemm = fmt::format("{:.0f}%", 100 * total.flops / total.seconds / best);
    }
    text += fmt::format("{:<46} {:>8.1f} {:>9.2f} {:>5.1f}% {:>8} {:>8} {:>7.1f} {:>7.0f}%\n", name,
                        total.calls / steps_, ms, 100 * total.seconds / seconds_, rate, of_gemm,
                        total.bytes / total.seconds * 1e-9, 100 * total.bytes / total.seconds / memory);
  }
  text += fmt::format("{:<46} {:>8} {:>9.2f} {:>5.1f}%\n", "outside (batches, reduction, statistics)", "",
                      (seconds_ - named) / steps_ * 1e3, 100 * (seconds_ - named) / seconds_);
  text += fmt::format(
      "a step: {:.1f} ms, {:.1f} GFLOP, {:.1f} GFLOP/s: {:.0f}% of the {:.1f} GFLOP/s that oneDNN reaches in "
      "its products alone; memory is copied at {:.1f} GB/s\n",
      seconds_ / steps_ * 1e3, flops / steps_ * 1e-9, flops / seconds_ * 1e-9, 100 * best_seconds / seconds_,
      flops / best_seconds * 1e-9, memory * 1e-9);
  return text;
}

}  // namespace nmt
