#include "collectives/memory/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace ddl::collectives {
namespace {

// No FUTEX_PRIVATE_FLAG: processes may share the word.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void Doorbell::sleep(std::uint32_t ticket, Clock::time_point until) noexcept {
  if (until == Clock::time_point::max()) {
    futex(word_, FUTEX_WAIT, ticket, nullptr);
  } else {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now()).count();
    if (left > 0) {
      const timespec timeout{static_cast<time_t>(left / 1'000'000'000),
                             static_cast<long>(left % 1'000'000'000)};
      futex(word_, FUTEX_WAIT, ticket, &timeout);
    }
  }
  cancel();
}

bool Doorbell::wake() noexcept {
  const std::uint32_t was = sleeping_.exchange(awake, std::memory_order_seq_cst);
  if (was == awake) return false;
  word_.fetch_add(1, std::memory_order_seq_cst);
  if (was == by_poll) return true;
  futex(word_, FUTEX_WAKE, 1, nullptr);
  return false;
}

}  // namespace ddl::collectives
