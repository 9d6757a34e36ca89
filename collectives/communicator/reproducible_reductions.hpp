#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/communicator/request.hpp"
#include "collectives/executor/operation.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {

class CommunicatorImpl;
class Job;

/// A communicator's reductions of floats, with bits that depend on nothing but the elements and the number of
/// ranks: made of collectives whose plans do not matter, because they reduce integers or only copy.
///
/// Sums and averages take three: the greatest of the ranks' scales, the sum of limbs (`ExactForm`) by
/// reduce_scatter, and an all_gather of the rounded results; `min` and `max` leave out the first one.
/// Products are multiplied in the order of ranks, after an all_gather. With f32 that is 1.75 times the bytes
/// of a plain all_reduce for sums (f64 2, 16-bit floats 2), 1 times (16-bit: 1.5) for `min` and `max`, and
/// ranks / 2 times for products.
///
/// A reduction is cut into parts of some MiB, several of which are under way at a time. Each kind of stage
/// has a communicator ("lane") of its own, in which all ranks start the parts' stages in the order of the
/// parts. What goes before and after a stage is computed by the thread that finds it due: a caller's, or the
/// one that finishes the stage before. Any thread.
class ReproducibleReductions : public std::enable_shared_from_this<ReproducibleReductions> {
 public:
  static constexpr std::size_t lanes = 3;
  using Lanes = std::array<std::shared_ptr<CommunicatorImpl>, lanes>;

  ReproducibleReductions(std::shared_ptr<Job> job, Lanes communicators);

  /// Whether the order of this reduction would matter.
  [[nodiscard]] static bool concerns(const Request& request) noexcept;

  struct Reduction;
  /// Takes calls in the order in which all ranks make them. `call`: as the user's communicator numbers it.
  /// `fingerprint`: of what the user called.
  std::shared_ptr<Reduction> accept(const Request& request, const Call& call, std::uint32_t fingerprint);
  /// Each once; one of them must follow.
  void run(const std::shared_ptr<Reduction>& reduction);
  std::shared_ptr<WorkState> start(const std::shared_ptr<Reduction>& reduction);

 private:
  enum class Stage : std::uint8_t { scales, limbs, results, finish };
  struct Part;
  struct Block {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
    bool is_used = false;
  };

  void add_parts(const std::shared_ptr<Reduction>& reduction, const Request& request);
  void pump();
  std::shared_ptr<Part> next_due();
  bool take_block(Part& part);
  void begin(const std::shared_ptr<Part>& part);
  void completed(const std::shared_ptr<Part>& part, const Error* error);
  [[nodiscard]] Request prepared(Part& part) const;
  void finish(const std::shared_ptr<Part>& part);
  void run_here(const std::shared_ptr<Part>& part);
  [[nodiscard]] Error error_of(const Part& part, const std::exception& problem) const;

  const std::shared_ptr<Job> job_;
  const Lanes lanes_;
  const Place place_;

  // Held for moments; never while something else is called.
  std::mutex mutex_;
  std::deque<std::shared_ptr<Part>> parts_;
  std::vector<std::unique_ptr<Block>> blocks_;
  bool pumping_ = false;
  bool pump_again_ = false;
};

}  // namespace ddl::collectives
