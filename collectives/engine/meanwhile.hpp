#pragma once

#include <algorithm>
#include <chrono>

namespace ddl::collectives {

/// While one of these lives, its thread calls it again and again in all waits of the engine: for callers
/// in whose waits something else has to move on as well, such as MPI's messages. The thread then sleeps for at
/// most a millisecond at a time.
class Meanwhile {
 public:
  using Look = void (*)();

  explicit Meanwhile(Look at) noexcept;
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;
  ~Meanwhile();

  /// Whether this thread has something to look at.
  [[nodiscard]] static bool wanted() noexcept;
  /// Calls what this thread wants called, if anything.
  static void look();

 private:
  Look before_;
};

/// How long to sleep before the next look at what cannot wake anyone: little at first, then more and more.
class Naps {
 public:
  using Duration = std::chrono::microseconds;

  Duration next() noexcept {
    constexpr int short_ones = 20;
    constexpr Duration shortest{50};
    constexpr Duration longest{1000};
    return ++count_ <= short_ones ? shortest : std::min(longest, shortest * (count_ - short_ones + 1));
  }
  void reset() noexcept { count_ = 0; }

 private:
  int count_ = 0;
};

}  // namespace ddl::collectives
