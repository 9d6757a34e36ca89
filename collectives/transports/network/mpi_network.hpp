#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

/// "CALL failed: what MPI says" as `transport`, unless `result` is MPI_SUCCESS.
void check_mpi(int result, const char* call);

/// Messages through MPI; where there is no UCX, and for plans that ask for MPI. MPI gives no way to sleep
/// until something comes, and does not tell which rank has died. Messages above 1 GiB go in pieces. Each
/// brings its call's fingerprint with it.
class MpiNetwork final : public Network {
 public:
  /// `communicator` returns errors instead of ending the job, and outlives the network. Collective. Throws
  /// `unsupported` if MPI's tags have fewer than 20 bits.
  explicit MpiNetwork(MPI_Comm communicator);
  /// Waits for what was sent, 10 s at most.
  ~MpiNetwork() override;

  [[nodiscard]] std::string name() const override { return "mpi"; }
  [[nodiscard]] int communicators() const override;
  [[nodiscard]] bool any_thread() const override;
  void send(int peer, MessageTag tag, std::span<const std::byte> bytes, Transfer& transfer) override;
  void receive(int peer, MessageTag tag, std::span<std::byte> bytes, Transfer& transfer) override;
  [[nodiscard]] bool has_other(int peer, MessageTag tag) const override;
  bool progress() override;
  [[nodiscard]] std::string failure() const override;
  /// MPI cannot be told to leave a message alone of which a part has come, but nothing here calls it any
  /// more.
  void abandon() noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl::collectives
