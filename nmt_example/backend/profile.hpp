#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "nmt_example/backend/wrapped_backend.hpp"

namespace nmt {

/// Measures each operation of another backend, whose operations must be complete when they return (host
/// backends). Not thread-safe.
class Profile final : public WrappedBackend {
 public:
  /// Operations count only within steps, and not in the first few, which also bring memory and code into
  /// place.
  explicit Profile(std::unique_ptr<Backend> inner, int uncounted_steps = 5)
      : WrappedBackend(std::move(inner)), uncounted_(uncounted_steps) {}

  void begin_step() noexcept { counts_ = uncounted_ == 0; }
  /// The step took so long.
  void count_step(double seconds);

  /// For people: a row for each operation, and for each size of products, by the time that it takes: calls
  /// and milliseconds a step, its share of the step, operations and bytes a second, and the share of what
  /// this machine reaches in oneDNN's product of the same sizes, or in copying memory. Measures these now,
  /// with this process's threads, which takes a second or two. `ranks` of one host should do so at the same
  /// time, because they share its memory.
  [[nodiscard]] std::string report();

 private:
  using Clock = std::chrono::steady_clock;
  struct Total {
    double calls = 0, seconds = 0, flops = 0, bytes = 0;
    double rows = 0, inner = 0;  ///< Sums over calls.
    std::int64_t cols = 0;
    ddl::DataType type = ddl::DataType::f32;
    std::string_view transposed;
  };

  void before(const Work&) override { begin_ = Clock::now(); }
  void after(const Work& work) override;

  Clock::time_point begin_;
  std::map<std::string, Total> totals_;
  double steps_ = 0, seconds_ = 0;
  int uncounted_;
  bool counts_ = false;
};

}  // namespace nmt
