#pragma once

#include "ddl/checkpoint.hpp"

namespace ddl {

/// SIGUSR1 and SIGTERM as requests to one rank. The signals' handlers are taken while any of these lives in
/// the process, where several ranks may be threads, and given back afterwards. Construct and destroy in any
/// thread.
class CheckpointSignals {
 public:
  /// Throws `invalid_argument` if the context has one already, `internal` if the system refuses.
  explicit CheckpointSignals(const Context& context);
  CheckpointSignals(const CheckpointSignals&) = delete;
  CheckpointSignals& operator=(const CheckpointSignals&) = delete;
  ~CheckpointSignals();

  /// The greatest request since those that were forgotten.
  [[nodiscard]] CheckpointRequest pending() const noexcept;
  /// Forgets requests up to `request`.
  void forget(CheckpointRequest request) noexcept;

 private:
  const ContextState* context_;
  unsigned saves_seen_;
  unsigned ends_seen_;
};

}  // namespace ddl
