#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/program/prepared_program.hpp"
#include "collectives/system/clock.hpp"

namespace ddl::collectives {

/// A counter with one writer at a time and any number of readers.
class Tally {
 public:
  void add(std::uint64_t more) noexcept { set(get() + more); }
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

/// Totals of a rank's calls with one plan.
struct PlanFigures {
  std::shared_ptr<const ChosenPlan> chosen;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< From when the engine began a call to its end, including waits for peers.
  double least = 0;    ///< The shortest call.
  std::vector<double> dimension_seconds;  ///< In which any chunk was in the dimension.
};

/// Accumulates the costs of a rank's calls.
class RunStatistics {
 public:
  explicit RunStatistics(int ranks) : received_(as_index(ranks)) {}

  // Only with the engine's token.
  /// The number of a program's plan in events, from 1; 0 if it has none or there are too many.
  std::uint32_t plan_number(const PreparedProgram& program);
  struct Run {
    std::size_t element_bytes = 1;
    std::uint64_t ticks = 0;
    std::span<const std::uint64_t> dimension_ticks{};  ///< Empty if the plan's only dimension took all.
  };
  /// `plan`: from `plan_number`.
  void ran(const PreparedProgram& program, std::uint32_t plan, const Run& run);
  /// Adds time in which any call was in flight.
  void busy(std::uint64_t ticks) noexcept { busy_.add(ticks); }
  /// Adds time in which a call was in flight and its caller waited.
  void alone(std::uint64_t ticks) noexcept { alone_.add(ticks); }

  // Thread-safe.
  /// Adds time for which a thread of the trainer waited for calls.
  void waited(std::uint64_t ticks) noexcept { waited_.fetch_add(ticks, std::memory_order_relaxed); }
  void gradient_step(double busy_seconds, double waited_seconds);

  struct Shares {
    double busy = 0;                               ///< Seconds in which any call was in flight.
    double waited = 0;                             ///< Seconds for which threads waited for calls.
    [[nodiscard]] double hidden() const noexcept;  ///< The fraction of `busy` that no thread waited for.
  };
  [[nodiscard]] Shares all() const;
  [[nodiscard]] Shares gradients() const;
  [[nodiscard]] std::vector<PlanFigures> plans() const;
  /// Bytes received, by the sender's rank.
  [[nodiscard]] std::vector<std::uint64_t> received() const;
  [[nodiscard]] double seconds(std::uint64_t ticks) const noexcept {
    return static_cast<double>(ticks) * ticks_.seconds_each();
  }

 private:
  struct Plan {
    explicit Plan(std::shared_ptr<const ChosenPlan> of)
        : chosen(std::move(of)), dimensions(chosen->dimensions.size()) {}
    std::shared_ptr<const ChosenPlan> chosen;
    Tally calls, bytes, ticks, least;
    std::vector<Tally> dimensions;
  };

  Ticks ticks_;
  std::unordered_map<const ChosenPlan*, std::uint32_t> numbers_;
  std::pair<const ChosenPlan*, std::uint32_t> last_plan_{};
  std::vector<Tally> received_;
  Tally busy_;
  Tally alone_;  // busy and waited at once
  std::atomic<std::uint64_t> waited_ = 0;
  mutable std::mutex mutex_;  // protects the number of plans, and what follows
  std::deque<Plan> plans_;
  Shares gradients_;
};

}  // namespace ddl::collectives
