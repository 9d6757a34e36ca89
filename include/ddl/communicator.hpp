#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "ddl/data_type.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl {

namespace collectives {
class CommunicatorImpl;
}

/// The ranks of a job and the collectives among them.
///
/// Every rank calls the same collectives in the same order with the same count, type, op and root.
/// All calls block until this rank's part is done. One thread at a time per communicator and rank.
/// With n ranks, N bytes, alpha seconds a message and beta seconds a byte, a ring costs
/// 2(n-1) alpha + 2N beta (n-1)/n (Patarasuk and Yuan, 2009); the two-level plan used on several
/// hosts sends 2N(H-1)/H bytes over a host's network link instead of a round-robin ring's L times
/// 2N(n-1)/n (H hosts, L ranks on each).
///
/// Errors: `invalid_argument` (null data, unknown root), `timeout` (a peer did not arrive before the
/// deadline; the message names the collective and the peers), `transport`.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<collectives::CommunicatorImpl> impl);

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] const topology::RankMap& rank_map() const noexcept;

  /// In place: afterwards every rank holds the same bits, the reduction of all ranks' `values`.
  template <Element T, std::size_t Extent>
  void all_reduce(std::span<T, Extent> values, ReduceOp op = ReduceOp::sum) {
    all_reduce(values.data(), values.size(), data_type_of<T>(), op);
  }
  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op);

  /// In place: afterwards every rank holds `root`'s `values`.
  template <Element T, std::size_t Extent>
  void broadcast(std::span<T, Extent> values, int root = 0) {
    broadcast(values.data(), values.size_bytes(), root);
  }
  void broadcast(void* data, std::size_t bytes, int root);

  /// Returns after every rank has called it.
  void barrier();

 private:
  std::shared_ptr<collectives::CommunicatorImpl> impl_;
};

}  // namespace ddl
