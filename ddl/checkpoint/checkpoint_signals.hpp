#pragma once

#include "ddl/checkpoint.hpp"

namespace ddl {

/// Receives SIGUSR1 and SIGTERM as requests to one rank. Installs signal handlers while any object of this
/// class exists in the process, where several ranks may be threads, and restores the old handlers afterwards.
/// May be constructed and destroyed in any thread.
class CheckpointSignals {
 public:
  /// Throws `invalid_argument` if the context already has such an object, `internal` if the system refuses.
  explicit CheckpointSignals(const Context& context);
  CheckpointSignals(const CheckpointSignals&) = delete;
  CheckpointSignals& operator=(const CheckpointSignals&) = delete;
  ~CheckpointSignals();

  /// The strongest request that was not forgotten.
  [[nodiscard]] CheckpointRequest pending() const noexcept;
  /// Forgets requests up to `request`.
  void forget(CheckpointRequest request) noexcept;

 private:
  const ContextState* context_;
  unsigned saves_seen_;
  unsigned ends_seen_;
};

}  // namespace ddl
