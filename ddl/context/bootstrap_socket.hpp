#pragma once

#include <string>
#include <vector>

#include "collectives/system/descriptors.hpp"
#include "ddl/context/process_bootstrap.hpp"

namespace ddl {

/// Bootstrap for jobs without MPI: processes of one machine to which RANK and WORLD_SIZE are set, as by
/// PyTorch's launchers, and which connect to a Unix socket of rank 0. DDL_SOCKET names the socket: the path
/// of a file, or an abstract name "@...". If it is unset, an abstract name is made from the user, MASTER_PORT
/// (if that is unset too: the session) and the number of ranks. Processes of other users are rejected. No
/// file is left behind.
class SocketBootstrap final : public ProcessBootstrap {
 public:
  /// True if WORLD_SIZE and RANK are set.
  static bool is_present();
  /// The value of RANK. Throws `invalid_argument` unless it is below WORLD_SIZE.
  static int named_rank();

  /// Connects all ranks. Throws `invalid_argument` for bad values of variables, `transport` for a socket that
  /// cannot be used, `mismatch` if WORLD_SIZE differs or two processes have the same RANK, `timeout` if a
  /// rank does not arrive.
  explicit SocketBootstrap(std::chrono::milliseconds deadline);

  std::vector<std::string> all_gather(std::string_view bytes) override;
  /// Closes the connections. The other ranks notice by the watch, or by the end of their connection.
  void abort(int status) noexcept override;

 private:
  void invite();
  void accept_one(TimePoint until);
  void join();
  // `peer`: the rank at the other end, for messages.
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
    std::string file;  // the socket's file, removed at the end; empty: none
  } listener_;
  std::vector<collectives::FileDescriptor> connections_;  // on rank 0: by rank; on others: one, to rank 0
};

}  // namespace ddl
