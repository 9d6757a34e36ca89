#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ddl::collectives {

/// How ranks find each other before there is anything to send data through: started by MPI, as
/// threads of one process, or otherwise. Collective calls are made by all ranks in the same order.
class Bootstrap {
 public:
  Bootstrap() = default;
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  virtual ~Bootstrap() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Every rank's `bytes`, by rank. Collective. For start-up: it may be slow.
  virtual std::vector<std::string> all_gather(std::string_view bytes) = 0;
  /// The job cannot go on, and the others may be waiting: ends all its processes. Returns where
  /// there is no such thing to do.
  virtual void abort(int status) noexcept = 0;
  /// `idle` is called again and again while `all_gather` waits; empty: nothing is. Where waiting does not
  /// keep others from their work it may be ignored.
  virtual void set_idle(std::function<void()> /*idle*/) {}
  /// From here on the job is not left in order any more (no MPI_Finalize).
  virtual void abandon() noexcept {}
};

}  // namespace ddl::collectives
