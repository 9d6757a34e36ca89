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

/// A number that one thread at a time adds to, and any thread reads.
class Tally {
 public:
  void add(std::uint64_t more) noexcept { set(get() + more); }
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

/// What a rank's calls of one plan came to.
struct PlanFigures {
  std::shared_ptr<const ChosenPlan> chosen;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< From where the engine began to the end, waits for others included.
  double least = 0;    ///< Of one call.
  std::vector<double> dimension_seconds;  ///< In which some chunk was in the dimension.
};

/// Adds up what a rank's calls cost. Said of each function: with the engine's token, or any thread.
class RunStatistics {
 public:
  explicit RunStatistics(int ranks) : received_(static_cast<std::size_t>(ranks)) {}

  // With the engine's token.
  /// A program's plan, as events number it: from 1 on; 0: it has none, or there were too many.
  std::uint32_t plan_number(const PreparedProgram& program);
  struct Run {
    std::size_t element_bytes = 1;
    std::uint64_t ticks = 0;
    std::span<const std::uint64_t> dimension_ticks{};  ///< Empty: the plan has one, which took all.
  };
  /// `plan`: the program's number.
  void ran(const PreparedProgram& program, std::uint32_t plan, const Run& run);
  /// Some call was under way for so long.
  void busy(std::uint64_t ticks) noexcept { busy_.add(ticks); }
  /// A call was under way and waited for, for so long.
  void alone(std::uint64_t ticks) noexcept { alone_.add(ticks); }

  // Any thread.
  /// A thread of the trainer's has waited for calls for so long.
  void waited(std::uint64_t ticks) noexcept { waited_.fetch_add(ticks, std::memory_order_relaxed); }
  /// The part of both in steps of gradient reducers.
  void gradient_step(double busy_seconds, double waited_seconds);

  struct Shares {
    double busy = 0;                               ///< Seconds in which some call was under way.
    double waited = 0;                             ///< Seconds for which threads waited for calls.
    [[nodiscard]] double hidden() const noexcept;  ///< Of `busy`, from 0 to 1.
  };
  [[nodiscard]] Shares all() const;
  [[nodiscard]] Shares gradients() const;
  [[nodiscard]] std::vector<PlanFigures> plans() const;
  /// Bytes, by the rank that they came from.
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
  Tally alone_;  // part of both shares
  std::atomic<std::uint64_t> waited_ = 0;
  mutable std::mutex mutex_;  // of the number of plans, and of what follows
  std::deque<Plan> plans_;
  Shares gradients_;
};

}  // namespace ddl::collectives
