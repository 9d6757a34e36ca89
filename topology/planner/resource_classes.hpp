#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/planner/planner_routes.hpp"

namespace ddl::topology {

/// The load that one round puts on one resource, in us a byte of the range.
struct Load {
  Resource resource;
  float us_per_byte;
};

/// Resources that every round so far loads alike form one class. A column is the load of one round, by class.
class ResourceClasses {
 public:
  explicit ResourceClasses(std::size_t resources);

  /// Adds a column and returns its index. Each resource is listed at most once; the others have no load.
  std::size_t add(std::span<const Load> loads);

  [[nodiscard]] std::size_t classes() const noexcept { return sizes_.size(); }
  /// Valid until the next `add`.
  [[nodiscard]] std::span<const float> column(std::size_t index) const { return columns_[index]; }

 private:
  std::vector<std::uint32_t> class_of_;
  std::vector<std::uint32_t> sizes_;
  std::vector<std::vector<float>> columns_;
};

}  // namespace ddl::topology
