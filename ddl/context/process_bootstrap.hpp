#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "collectives/system/bootstrap.hpp"
#include "collectives/transports/network/network.hpp"
#include "collectives/watch/watch.hpp"

namespace ddl {

/// Ranks that are processes: waiting for each other ends with a deadline, or with what the watch tells.
class ProcessBootstrap : public collectives::Bootstrap {
 public:
  explicit ProcessBootstrap(std::chrono::milliseconds deadline) : deadline_(deadline) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  void set_idle(std::function<void()> idle) override { idle_ = std::move(idle); }
  /// What tells of other ranks' deaths from here on.
  void set_watch(std::shared_ptr<collectives::Watch> watch) { watch_ = std::move(watch); }
  /// Messages to all ranks, through MPI. Collective. Must be gone before this object is. Throws
  /// `unsupported`, agreed, where the job was not started by MPI.
  virtual std::unique_ptr<collectives::Network> make_mpi_network();

 protected:
  using TimePoint = collectives::Clock::time_point;
  [[nodiscard]] TimePoint due() const { return collectives::Clock::now() + deadline_; }
  /// To be called again and again by who waits. Throws `peer_failed` once the watch says that the job fails,
  /// and `timeout` after `until`: "while the ranks met (`exchange`): `missing`".
  void look(TimePoint until, const std::string& exchange, const std::string& missing);
  /// A peer is gone: what the watch says of it, if it says anything soon, else `text`.
  [[noreturn]] void throw_gone(const std::string& text);

  int rank_ = 0;
  int size_ = 1;
  int exchanges_ = 0;  // all_gather's, for messages

 private:
  [[noreturn]] void throw_reported();

  std::chrono::milliseconds deadline_;
  std::shared_ptr<collectives::Watch> watch_;
  std::function<void()> idle_;
};

}  // namespace ddl
