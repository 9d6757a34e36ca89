#include "topology/resource_classes.hpp"

#include <algorithm>
#include <numeric>

namespace ddl::topology {

ResourceClasses::ResourceClasses(std::size_t resources)
    : class_of_(resources, 0), sizes_{static_cast<std::uint32_t>(resources)}, members_{0} {}

std::uint32_t ResourceClasses::split(std::uint32_t from, Resource member) {
  for (auto& column : columns_) column.push_back(column[from]);
  sizes_.push_back(0);
  members_.push_back(member);
  return static_cast<std::uint32_t>(sizes_.size()) - 1;
}

std::size_t ResourceClasses::add(std::span<const Load> loads) {
  std::vector<std::uint32_t> by_class(loads.size());
  std::iota(by_class.begin(), by_class.end(), 0);
  const auto class_at = [&](std::uint32_t i) {
    return class_of_[static_cast<std::size_t>(loads[i].resource)];
  };
  std::ranges::sort(by_class, [&](std::uint32_t a, std::uint32_t b) {
    const auto class_a = class_at(a);
    const auto class_b = class_at(b);
    if (class_a != class_b) return class_a < class_b;
    if (loads[a].us_per_byte != loads[b].us_per_byte) return loads[a].us_per_byte < loads[b].us_per_byte;
    return loads[a].resource < loads[b].resource;
  });
  std::vector<float> column(classes(), 0);
  for (std::size_t begin = 0; begin < by_class.size();) {
    const std::uint32_t of = class_at(by_class[begin]);
    std::size_t class_end = begin;
    while (class_end < by_class.size() && class_at(by_class[class_end]) == of) ++class_end;
    // The first value keeps the class if nothing is left in it without a load.
    bool is_kept = class_end - begin == sizes_[of];
    for (std::size_t i = begin; i < class_end;) {
      const float value = loads[by_class[i]].us_per_byte;
      std::size_t end = i;
      while (end < class_end && loads[by_class[end]].us_per_byte == value) ++end;
      if (is_kept) {
        column[of] = value;
        members_[of] = loads[by_class[i]].resource;
        is_kept = false;
      } else {
        const std::uint32_t made = split(of, loads[by_class[i]].resource);
        column.push_back(value);
        for (std::size_t j = i; j < end; ++j) {
          class_of_[static_cast<std::size_t>(loads[by_class[j]].resource)] = made;
        }
        sizes_[made] = static_cast<std::uint32_t>(end - i);
        sizes_[of] -= static_cast<std::uint32_t>(end - i);
      }
      i = end;
    }
    begin = class_end;
  }
  columns_.push_back(std::move(column));
  return columns_.size() - 1;
}

}  // namespace ddl::topology
