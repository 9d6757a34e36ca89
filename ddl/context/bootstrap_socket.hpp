#pragma once

#include <string>
#include <vector>

#include "collectives/system/descriptors.hpp"
#include "ddl/context/process_bootstrap.hpp"

namespace ddl {

/// Processes of one machine that are told who they are by RANK and WORLD_SIZE, as PyTorch's launchers do, and
/// find each other through a Unix socket of rank 0's: jobs without MPI. The socket is DDL_SOCKET: a file's
/// path, or else a name without a file ("@..."). Unless set it is such a name, made of the user, MASTER_PORT
/// (where that is not set either: the session, as a terminal's) and the number of ranks. Processes of other
/// users are turned away. Nothing is left behind.
class SocketBootstrap final : public ProcessBootstrap {
 public:
  /// True if WORLD_SIZE and RANK are set.
  static bool is_present();
  /// RANK. Throws `invalid_argument` unless it is below WORLD_SIZE.
  static int named_rank();

  /// Meets the other ranks. Throws `invalid_argument` for values that cannot be, `transport` for a socket
  /// that cannot be used, `mismatch` where processes do not fit together, `timeout` if some have not come.
  explicit SocketBootstrap(std::chrono::milliseconds deadline);

  std::vector<std::string> all_gather(std::string_view bytes) override;
  /// Who is left notices by the watch, or here by a connection that ends.
  void abort(int status) noexcept override;

 private:
  void invite();
  void accept_one(TimePoint until);
  void join();
  // `peer`: for messages.
  using Connection = const collectives::FileDescriptor&;
  void send(Connection connection, int peer, std::string_view bytes, TimePoint until);
  void receive(Connection connection, int peer, void* to, std::size_t bytes, TimePoint until);
  void send_message(Connection connection, int peer, std::string_view bytes, TimePoint until);
  std::string receive_message(Connection connection, int peer, TimePoint until);
  [[nodiscard]] std::string exchange() const;

  std::string name_;
  struct Listener {
    ~Listener();
    collectives::FileDescriptor socket;
    std::string file;  // to be removed
  } listener_;
  std::vector<collectives::FileDescriptor> connections_;  // rank 0: by rank; others: to rank 0
};

}  // namespace ddl
