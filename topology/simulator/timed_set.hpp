#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace ddl::topology {

/// Numbers below a limit, each at most once, with times that can change. The earliest comes first.
class TimedSet {
 public:
  explicit TimedSet(std::size_t limit) : position_(limit, none), time_(limit) {}

  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }
  [[nodiscard]] double next() const noexcept {
    return heap_.empty() ? std::numeric_limits<double>::infinity() : time_[heap_.front()];
  }
  /// Adds a number or changes its time.
  void set(std::uint32_t number, double time) {
    time_[number] = time;
    std::uint32_t at = position_[number];
    if (at == none) {
      at = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back(number);
    }
    rise(at, number);
    sink(position_[number], number);
  }
  /// As `set` for each of the numbers; cheaper if most times change.
  template <typename Numbers, typename TimeOf>
  void set_all(const Numbers& numbers, TimeOf time_of) {
    if (numbers.size() * 4 < heap_.size()) {
      for (const std::uint32_t number : numbers) set(number, time_of(number));
      return;
    }
    for (const std::uint32_t number : numbers) {
      time_[number] = time_of(number);
      if (position_[number] != none) continue;
      position_[number] = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back(number);
    }
    for (std::size_t i = heap_.size() / arity + 1; i-- > 0;) {
      if (i < heap_.size()) sink(static_cast<std::uint32_t>(i), heap_[i]);
    }
  }
  std::uint32_t pop() {
    const std::uint32_t first = heap_.front();
    const std::uint32_t last = heap_.back();
    heap_.pop_back();
    position_[first] = none;
    if (!heap_.empty()) sink(0, last);
    return first;
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  static constexpr std::uint32_t arity = 4;

  void place(std::uint32_t at, std::uint32_t number) {
    heap_[at] = number;
    position_[number] = at;
  }
  void rise(std::uint32_t at, std::uint32_t number) {
    while (at > 0) {
      const std::uint32_t parent = (at - 1) / arity;
      if (time_[heap_[parent]] <= time_[number]) break;
      place(at, heap_[parent]);
      at = parent;
    }
    place(at, number);
  }
  void sink(std::uint32_t at, std::uint32_t number) {
    const auto size = static_cast<std::uint32_t>(heap_.size());
    for (std::uint32_t first = at * arity + 1; first < size; first = at * arity + 1) {
      std::uint32_t least = first;
      for (std::uint32_t child = first + 1; child < std::min(first + arity, size); ++child) {
        if (time_[heap_[child]] < time_[heap_[least]]) least = child;
      }
      if (time_[heap_[least]] >= time_[number]) break;
      place(at, heap_[least]);
      at = least;
    }
    place(at, number);
  }

  std::vector<std::uint32_t> heap_;
  std::vector<std::uint32_t> position_;
  std::vector<double> time_;
};

}  // namespace ddl::topology
