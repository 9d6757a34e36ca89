#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "collectives/program/prepared_program.hpp"
#include "ddl/device/runtime/device_path.hpp"

namespace ddl::device {

/// How a call is done: in parts, one after the other, each by a program.
struct Recipe {
  std::size_t at_once = 0;  ///< Of the call's `count`: what a part takes.
  std::unique_ptr<const collectives::PreparedProgram> part;
  std::unique_ptr<const collectives::PreparedProgram> last;  ///< Null: as the others.
  std::uint64_t plan = 0;                                    ///< Its hash.
};

/// The recipes of a group's members for calls on devices: the steps of a call's plan, whose messages all go
/// through a network. Pure functions of the call and the sizes here, so all ranks cut alike. One thread.
class Recipes {
 public:
  /// `memory`: as much as there is for a part's scratch memory, and as much again for its result where that
  /// cannot be in the output. `message`: of the longest one. Bytes.
  Recipes(GroupMembers& members, std::size_t memory, std::size_t message);

  /// A call that is no barrier, of several ranks.
  const Recipe& of(const DeviceCall& call);
  [[nodiscard]] const collectives::PreparedProgram& meeting() const { return *meeting_; }

 private:
  /// Collective, root, count, type, the plan's hash.
  using Key = std::tuple<topology::Collective, int, std::size_t, DataType, std::uint64_t>;

  [[nodiscard]] Recipe made(const DeviceCall& call) const;
  [[nodiscard]] std::size_t most_at_once(const DeviceCall& call, const topology::Plan& plan) const;
  [[nodiscard]] std::unique_ptr<const collectives::PreparedProgram> prepared(topology::Program program,
                                                                             std::size_t elements,
                                                                             DataType type) const;

  GroupMembers& members_;
  const std::size_t memory_;
  const std::size_t message_;
  std::unique_ptr<const collectives::PreparedProgram> meeting_;
  std::map<Key, Recipe> known_;
};

}  // namespace ddl::device
