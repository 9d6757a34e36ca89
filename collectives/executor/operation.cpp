#include "collectives/executor/operation.hpp"

#include "collectives/executor/waiting.hpp"
#include "ddl/work.hpp"

namespace ddl::collectives {

void WorkState::wait() {
  const CountedWait counted(done() ? nullptr : run_.get());
  if (help_ && !done()) help_(*this, true);
  const auto is_done = [&] { return done_.load(std::memory_order_relaxed); };
  std::unique_lock lock(mutex_);
  Naps naps = Naps::for_others();
  while (Meanwhile::wanted() && !changed_.wait_for(lock, naps.next(), is_done)) {
    lock.unlock();
    Meanwhile::look();
    lock.lock();
  }
  changed_.wait(lock, is_done);
  if (error_) throw Error(*error_);
}

bool WorkState::wait_for(std::chrono::nanoseconds duration) {
  const CountedWait counted(done() ? nullptr : run_.get());
  const auto until = std::chrono::steady_clock::now() + duration;
  while (help_ && !test() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, until, [&] { return done_.load(std::memory_order_relaxed); })) return false;
  if (error_) throw Error(*error_);
  return true;
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
    if (!done_.load(std::memory_order_relaxed)) return continuations_.push_back(std::move(continuation));
  }
  continuation(error_ ? &*error_ : nullptr);
}

void WorkState::keep(std::shared_ptr<const void> what) {
  const std::lock_guard lock(mutex_);
  if (!done_.load(std::memory_order_relaxed)) kept_ = std::move(what);
}

void WorkState::finish(std::optional<Error> error) {
  std::vector<Continuation> continuations;
  std::shared_ptr<const void> kept;
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    continuations.swap(continuations_);
    kept.swap(kept_);
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
bool Work::wait_for(std::chrono::nanoseconds duration) { return !state_ || state_->wait_for(duration); }
bool Work::test() { return !state_ || state_->test(); }
void Work::then(std::function<void(const Error*)> continuation) {
  if (state_) return state_->then(std::move(continuation));
  continuation(nullptr);
}

}  // namespace ddl
