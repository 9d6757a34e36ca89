#include "ddl/work.hpp"

#include <utility>

#include "collectives/engine/work_state.hpp"

namespace ddl {

Work::Work(std::shared_ptr<collectives::WorkState> state) : state_(std::move(state)) {}

void Work::wait() {
  if (state_) state_->wait();
}

bool Work::test() { return !state_ || state_->test(); }

void Work::then(std::function<void(const Error*)> continuation) {
  if (state_) {
    state_->then(std::move(continuation));
  } else {
    continuation(nullptr);
  }
}

}  // namespace ddl
