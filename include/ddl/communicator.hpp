#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ddl/data_type.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/rank_map.hpp"

namespace ddl {

namespace collectives {
class CommunicatorImpl;
}

/// The ranks of a job and the collectives among them.
///
/// Every rank calls the same collectives in the same order with the same count, type, op and root.
/// All calls block until this rank's part is done. One thread at a time per communicator and rank.
/// How each is done is chosen for the job's topology (`topology::Planner`) when a call of its size, one of
/// four classes an octave, is first made; see `plan`. With n ranks, N bytes, alpha seconds a message and beta
/// seconds a byte, a ring costs 2(n-1) alpha + 2N beta (n-1)/n (Patarasuk and Yuan, 2009), a hierarchy over H
/// hosts sends 2N(H-1)/H bytes over a host's network link, a tree or direct exchange takes fewer steps. The
/// first call of a class costs the planning, and a comparison in which all ranks make sure that they call and
/// plan alike.
///
/// Errors: `invalid_argument` (null data, unknown root), `timeout` (a peer did not arrive before the
/// deadline; the message names the collective, the plan and the peers), `mismatch` (at the first use of a
/// plan: another rank called something else or has another plan), `transport`.
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

  /// The plan that is used for calls of `bytes` bytes. Not collective. Throws `invalid_argument` for a
  /// barrier, which needs none.
  [[nodiscard]] topology::Plan plan(topology::Collective collective, std::uint64_t bytes,
                                    DataType type) const;

 private:
  std::shared_ptr<collectives::CommunicatorImpl> impl_;
};

}  // namespace ddl
