#include "collectives/system/clock.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace ddl::collectives {
namespace {

std::uint64_t nanoseconds(Clock::duration duration) noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
}

#if defined(__x86_64__)
bool counter_is_even() noexcept {
  constexpr unsigned leaf = 0x80000007;
  constexpr unsigned invariant_bit = 1U << 8;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(leaf, &a, &b, &c, &d) != 0 && (d & invariant_bit) != 0;
}
const bool by_counter = counter_is_even();
#endif

}  // namespace

std::uint64_t Ticks::now() noexcept {
#if defined(__x86_64__)
  if (by_counter) return __rdtsc();
#endif
  return nanoseconds(Clock::now().time_since_epoch());
}

Ticks::Ticks() noexcept : ticks_(now()), time_(Clock::now()) {}

double Ticks::seconds_each() const noexcept {
  const std::uint64_t ticks = now();
  const double seconds = std::chrono::duration<double>(Clock::now() - time_).count();
  return ticks <= ticks_ ? 0 : seconds / static_cast<double>(ticks - ticks_);
}

}  // namespace ddl::collectives
