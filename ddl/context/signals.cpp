#include "ddl/context/signals.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "topology/refuse.hpp"

namespace ddl {
namespace {

/// Lasts until its thread ends.
class SignalStack {
 public:
  SignalStack() {
    stack_t now{};
    if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
    memory_ = std::make_unique<std::byte[]>(size);
    stack_t mine{};
    mine.ss_sp = memory_.get();
    mine.ss_size = size;
    if (sigaltstack(&mine, nullptr) != 0) memory_.reset();
  }
  ~SignalStack() {
    stack_t now{};
    if (!memory_ || sigaltstack(nullptr, &now) != 0 || now.ss_sp != memory_.get()) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
  SignalStack& operator=(SignalStack&&) = delete;

 private:
  static constexpr std::size_t size = 64 * 1024;  // a frame with AMX registers takes 11 KiB
  std::unique_ptr<std::byte[]> memory_;
};

// Global, because a signal handler gets no arguments of its own.
volatile int dump_event = -1;

void ask_for_dump(int) {
  const int error = errno;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(dump_event, &one, sizeof one));
  errno = error;
}

}  // namespace

void ensure_signal_stack() { static thread_local const SignalStack stack; }

struct sigaction handle_signal(int signal, void (*handler)(int)) {
  ensure_signal_stack();
  struct sigaction before {};
  struct sigaction wanted {};
  wanted.sa_handler = handler;
  wanted.sa_flags = SA_RESTART | SA_ONSTACK;
  if (sigaction(signal, &wanted, &before) == 0) return before;
  fail_with(ErrorCode::internal, "cannot handle signal {}: {}", signal, std::strerror(errno));
}

int flight_dump_event() {
  static const int event = [] {
    struct sigaction now {};
    if (sigaction(SIGUSR2, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return -1;
    dump_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (dump_event >= 0) handle_signal(SIGUSR2, ask_for_dump);
    return static_cast<int>(dump_event);
  }();
  return event;
}

}  // namespace ddl
