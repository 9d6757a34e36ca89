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

/// Bootstrap for ranks that are processes. Waits for peers end with the deadline or when the watch reports a
/// failure.
class ProcessBootstrap : public collectives::Bootstrap {
 public:
  explicit ProcessBootstrap(std::chrono::milliseconds deadline) : deadline_(deadline) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  void set_idle(std::function<void()> idle) override { idle_ = std::move(idle); }
  /// Sets the watch that reports deaths of other ranks from now on.
  void set_watch(std::shared_ptr<collectives::Watch> watch) { watch_ = std::move(watch); }
  /// Makes a network to all ranks through MPI, which must be destroyed before this object. Collective. Throws
  /// `unsupported`, agreed, if the job was not started by MPI.
  virtual std::unique_ptr<collectives::Network> make_mpi_network();

 protected:
  using TimePoint = collectives::Clock::time_point;
  [[nodiscard]] TimePoint due() const { return collectives::Clock::now() + deadline_; }
  /// To be called repeatedly while waiting. Throws `peer_failed` once the watch reports a failure of the job,
  /// and `timeout` after `until`: "while the ranks met (`exchange`): `missing`".
  void look(TimePoint until, const std::string& exchange, const std::string& missing);
  /// Throws `peer_failed` for a lost connection, with the report of the watch if it comes soon, else `text`.
  [[noreturn]] void throw_gone(const std::string& text);

  int rank_ = 0;
  int size_ = 1;
  int exchanges_ = 0;  // number of all_gather calls, for messages

 private:
  [[noreturn]] void throw_reported();

  std::chrono::milliseconds deadline_;
  std::shared_ptr<collectives::Watch> watch_;
  std::function<void()> idle_;
};

}  // namespace ddl
