#include "collectives/engine/work_state.hpp"

#include <utility>

#include "ddl/work.hpp"

namespace ddl::collectives {

void WorkState::wait() {
  if (help_ && !done()) help_(*this, true);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_.load(std::memory_order_relaxed); });
  if (error_) throw Error(*error_);
}

bool WorkState::test() {
  if (help_ && !done_.load(std::memory_order_acquire)) help_(*this, false);
  if (!done_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  if (error_) throw Error(*error_);
  return true;
}

void WorkState::then(Continuation continuation) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_.load(std::memory_order_relaxed)) {
      continuations_.push_back(std::move(continuation));
      return;
    }
  }
  continuation(error_ ? &*error_ : nullptr);
}

void WorkState::finish(std::optional<Error> error) {
  std::vector<Continuation> continuations;
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    continuations.swap(continuations_);
    done_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
  for (const Continuation& continuation : continuations) continuation(error_ ? &*error_ : nullptr);
}

}  // namespace ddl::collectives

namespace ddl {

Work::Work(std::shared_ptr<collectives::WorkState> state) : state_(std::move(state)) {}

void Work::wait() {
  if (state_) state_->wait();
}
bool Work::test() { return !state_ || state_->test(); }
void Work::then(std::function<void(const Error*)> continuation) {
  if (state_) return state_->then(std::move(continuation));
  continuation(nullptr);
}

}  // namespace ddl
