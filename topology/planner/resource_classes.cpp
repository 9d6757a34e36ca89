#include "topology/planner/resource_classes.hpp"

#include <bit>

namespace ddl::topology {
namespace {

constexpr std::uint32_t none = UINT32_MAX;

}  // namespace

ResourceClasses::ResourceClasses(std::size_t resources)
    : class_of_(resources, 0), sizes_{static_cast<std::uint32_t>(resources)} {}

std::size_t ResourceClasses::add(std::span<const Load> loads) {
  // Resources of one class with one value, in the order in which groups first occur.
  struct Group {
    std::uint32_t of;
    float value;
    std::uint32_t size = 0;
    std::uint32_t becomes = 0;
  };
  std::vector<Group> groups;
  std::vector<std::uint32_t> group_of(loads.size());
  std::vector<std::uint32_t> loaded(classes(), 0);
  std::unordered_map<std::uint64_t, std::uint32_t> known;
  std::uint64_t last_key = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const auto& [resource, value] = loads[i];
    const std::uint32_t of = class_of_[as_index(resource)];
    const std::uint64_t key = std::uint64_t{of} << 32U | std::bit_cast<std::uint32_t>(value);
    if (i > 0 && key == last_key) {
      group_of[i] = group_of[i - 1];
    } else {
      const auto [entry, is_new] = known.try_emplace(key, static_cast<std::uint32_t>(groups.size()));
      if (is_new) groups.push_back({of, value});
      group_of[i] = entry->second;
      last_key = key;
    }
    ++groups[group_of[i]].size;
    ++loaded[of];
  }
  std::vector<float> column(classes(), 0);
  for (Group& group : groups) {
    // If every resource of a class is loaded, the first value keeps the class.
    if (loaded[group.of] == sizes_[group.of]) {
      loaded[group.of] = none;
      group.becomes = group.of;
      column[group.of] = group.value;
    } else {
      group.becomes = static_cast<std::uint32_t>(sizes_.size());
      for (auto& earlier : columns_) earlier.push_back(earlier[group.of]);
      sizes_.push_back(0);
      column.push_back(group.value);
    }
  }
  for (const Group& group : groups) {
    if (group.becomes == group.of) continue;
    sizes_[group.becomes] = group.size;
    sizes_[group.of] -= group.size;
  }
  for (std::size_t i = 0; i < loads.size(); ++i) {
    class_of_[as_index(loads[i].resource)] = groups[group_of[i]].becomes;
  }
  columns_.push_back(std::move(column));
  return columns_.size() - 1;
}

}  // namespace ddl::topology
