#include "ddl/context/signal_stack.hpp"

#include <signal.h>

#include <cstddef>
#include <memory>

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
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  static constexpr std::size_t size = 64 * 1024;  // a frame with AMX registers takes 11 KiB
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace

void ensure_signal_stack() { static thread_local const SignalStack stack; }

}  // namespace ddl
