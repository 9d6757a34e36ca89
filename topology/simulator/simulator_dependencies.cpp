#include "topology/simulator/simulator_dependencies.hpp"

#include <unordered_map>
#include <utility>

#include "ddl/hash.hpp"

namespace ddl::topology {
namespace {

std::uint64_t hash_of(const Dependencies& dependencies) {
  Fnv hash;
  for (std::size_t step = 0; step < dependencies.steps(); ++step) {
    for (const std::uint32_t later : dependencies.after(step)) hash.add(later);
    hash.add(UINT32_MAX);
  }
  return hash.value();
}

}  // namespace

SharedDependencies::SharedDependencies(const Schedule& schedule) {
  std::unordered_multimap<std::uint64_t, std::uint32_t> known;
  for (const Program& program : schedule.ranks) {
    Dependencies dependencies(program);
    const std::uint64_t hash = hash_of(dependencies);
    const auto [first, last] = known.equal_range(hash);
    auto same = first;
    while (same != last && tables_[same->second] != dependencies) ++same;
    if (same != last) {
      table_of_.push_back(same->second);
      continue;
    }
    const auto table = static_cast<std::uint32_t>(tables_.size());
    known.emplace(hash, table);
    table_of_.push_back(table);
    tables_.push_back(std::move(dependencies));
  }
}

}  // namespace ddl::topology
