#pragma once

namespace ddl::collectives {

/// Tells the core that it is in a loop that waits for memory to change.
inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace ddl::collectives
