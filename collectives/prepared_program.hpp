#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddl/topology/dependencies.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::collectives {

/// What messages call a plan and its phases.
struct PlanNames {
  std::string plan;                 ///< One line.
  std::vector<std::string> phases;  ///< By `Step::phase`.
};

/// A program made ready to be run any number of times: which steps wait for which, and in which order those
/// of a peer and a direction take turns. Immutable.
class PreparedProgram {
 public:
  /// Steps of one direction with one peer: positions in `order()`.
  struct Stream {
    int peer;
    bool sends;
    std::uint32_t begin;
    std::uint32_t end;
  };
  static constexpr std::uint32_t no_stream = UINT32_MAX;

  /// For buffers of `count` elements. Throws `internal` for a program that cannot be run: an address outside
  /// buffer and scratch memory, a range that is partly in either, a step without a peer.
  PreparedProgram(topology::Program program, std::size_t count,
                  std::shared_ptr<const PlanNames> names = nullptr);

  [[nodiscard]] const std::vector<topology::Step>& steps() const noexcept { return program_.steps; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t scratch() const noexcept { return program_.scratch; }
  [[nodiscard]] const PlanNames* names() const noexcept { return names_.get(); }

  [[nodiscard]] std::span<const Stream> streams() const noexcept { return streams_; }
  /// Step indices, those of a stream together and ascending.
  [[nodiscard]] std::span<const std::uint32_t> order() const noexcept { return order_; }
  /// Index into `streams()`; `no_stream` for local steps.
  [[nodiscard]] std::uint32_t stream_of(std::size_t step) const { return stream_of_[step]; }
  /// How many steps must be complete before each.
  [[nodiscard]] std::span<const std::uint32_t> before() const noexcept { return before_; }
  /// The steps that wait for one.
  [[nodiscard]] std::span<const std::uint32_t> after(std::size_t step) const {
    return dependencies_.after(step);
  }
  /// Local steps that nothing must be complete before, ascending.
  [[nodiscard]] std::span<const std::uint32_t> first_local_steps() const noexcept { return first_local_; }

 private:
  topology::Program program_;
  std::size_t count_;
  std::shared_ptr<const PlanNames> names_;
  topology::Dependencies dependencies_;
  std::vector<Stream> streams_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> stream_of_;
  std::vector<std::uint32_t> before_;
  std::vector<std::uint32_t> first_local_;
};

}  // namespace ddl::collectives
