#pragma once

#include <cstddef>

namespace ddl::collectives {

/// Lets the core's other threads run for a moment, in a loop that polls memory.
inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // "yield" does nothing on most cores
#elif defined(__powerpc64__)
  asm volatile("or 27,27,27" ::: "memory");  // "yield": leaves the core to its other threads
#endif
}

inline constexpr std::size_t cache_line = 64;

/// Fetches the cache lines of [data, data + bytes) for reading.
inline void fetch(const std::byte* data, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += cache_line) __builtin_prefetch(data + at);
}

/// Takes the cache lines of [data, data + bytes) away from other cores, so that stores to them need not wait.
inline void fetch_for_writing(const std::byte* data, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += cache_line) {
#if defined(__x86_64__)
    // The compiler uses this only if it is told to; processors that lack it ignore it.
    asm volatile("prefetchw %0" ::"m"(data[at]));
#else
    __builtin_prefetch(data + at, 1);
#endif
  }
}

}  // namespace ddl::collectives
