#pragma once

#include <memory>

#include "collectives/bootstrap.hpp"
#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/context.hpp"
#include "ddl/log.hpp"

namespace ddl {

struct Context::State {
  State(ContextOptions options_, std::unique_ptr<collectives::Bootstrap> bootstrap_,
        std::shared_ptr<collectives::CommunicatorImpl> impl_);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Leaves the job in order, unless a failure was seen or an exception is passing through.
  ~State();

  ContextOptions options;
  Log log;
  // Outlives the communicator, whose transport may use what the bootstrap started.
  std::unique_ptr<collectives::Bootstrap> bootstrap;
  std::shared_ptr<collectives::CommunicatorImpl> impl;
  Communicator communicator;
  int exceptions_at_start;
};

}  // namespace ddl
