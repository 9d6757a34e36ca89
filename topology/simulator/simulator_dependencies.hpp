#pragma once

#include <cstdint>
#include <vector>

#include "ddl/topology/schedule.hpp"

namespace ddl::topology {

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
