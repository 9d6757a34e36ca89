#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

/// All that one rank sends to another, in order.
struct Stream {
  int from = 0;
  int to = 0;
  std::uint32_t first = 0;  // of its transfers among all
  std::uint32_t transfers = 0;
};

/// The transfers of a schedule: which send goes with which receive.
///
/// A step's number is its index in its rank's program, or that plus `first_step` of its rank.
class Streams {
 public:
  static constexpr std::uint32_t none = UINT32_MAX;

  /// Throws `invalid_argument` for a peer that is no other rank, an empty step, more than 2^50
  /// elements, and a stream whose two ends
  /// differ in the number of transfers or the length of one.
  explicit Streams(const Schedule& schedule);

  [[nodiscard]] std::span<const Stream> all() const noexcept { return streams_; }
  /// The stream of a step, or none for a local one.
  [[nodiscard]] std::uint32_t of_step(std::uint32_t global_step) const { return of_step_[global_step]; }
  /// A transfer's steps, in the sender's and in the receiver's program.
  [[nodiscard]] std::uint32_t send(std::uint32_t transfer) const { return sends_[transfer]; }
  [[nodiscard]] std::uint32_t receive(std::uint32_t transfer) const { return receives_[transfer]; }

  [[nodiscard]] std::uint32_t first_step(int rank) const {
    return first_step_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::uint32_t steps() const noexcept { return first_step_.back(); }
  [[nodiscard]] std::uint32_t transfers() const noexcept { return static_cast<std::uint32_t>(sends_.size()); }

 private:
  void number_steps(const Schedule& schedule);
  void find_streams(const Schedule& schedule);
  void list_transfers(const Schedule& schedule);
  void check_lengths(const Schedule& schedule) const;

  std::vector<Stream> streams_;
  std::vector<std::uint32_t> of_step_;
  std::vector<std::uint32_t> sends_;
  std::vector<std::uint32_t> receives_;
  std::vector<std::uint32_t> first_step_;  // ranks + 1
};

/// The dependencies of all ranks' programs. Ranks that do the same with different parts of the data, as
/// those of a ring, share them.
class SharedDependencies {
 public:
  explicit SharedDependencies(const Schedule& schedule);

  [[nodiscard]] const Dependencies& of(int rank) const { return tables_[table(rank)]; }
  /// Equal for ranks that share.
  [[nodiscard]] std::uint32_t table(int rank) const { return table_of_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t tables() const noexcept { return tables_.size(); }

 private:
  std::vector<Dependencies> tables_;
  std::vector<std::uint32_t> table_of_;
};

}  // namespace ddl::topology
