#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/communicator/request.hpp"
#include "collectives/executor/operation.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {

class CommunicatorImpl;
class Job;

/// A communicator's reproducible reductions of floats: their bits depend only on the elements and the number
/// of ranks. They consist of collectives whose order does not matter, because they reduce integers or only
/// copy.
///
/// Sums and averages take three stages: the maximum of the ranks' scales, the sum of limbs (`ExactForm`) by
/// reduce_scatter, and an all_gather of the rounded results. `min` and `max` skip the first. Products are
/// multiplied in rank order after an all_gather. For f32 this moves 1.75 times the bytes of a plain
/// all_reduce for sums (f64: 2, 16-bit floats: 2), 1 times (16-bit: 1.5) for `min` and `max`, and ranks / 2
/// times for products.
///
/// A reduction is cut into parts of some MiB, several of which are in flight at a time. Each stage has a
/// communicator ("lane") of its own, in which all ranks start the parts in order. Computations before and
/// after a stage run in the thread that finds it due: a caller's, or the one that completes the previous
/// stage. Thread-safe.
class ReproducibleReductions : public std::enable_shared_from_this<ReproducibleReductions> {
 public:
  static constexpr std::size_t lanes = 3;
  using Lanes = std::array<std::shared_ptr<CommunicatorImpl>, lanes>;

  ReproducibleReductions(std::shared_ptr<Job> job, Lanes communicators);

  /// Whether the request is a reduction of floats.
  [[nodiscard]] static bool concerns(const Request& request) noexcept;

  struct Reduction;
  /// Accepts calls in the order in which all ranks make them. `call`: numbered by the user's communicator.
  /// `fingerprint`: of the user's call.
  std::shared_ptr<Reduction> accept(const Request& request, const Call& call, std::uint32_t fingerprint);
  /// Exactly one of these must be called once for each reduction.
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

  // Held briefly; no other code is called while it is held.
  std::mutex mutex_;
  std::deque<std::shared_ptr<Part>> parts_;
  std::vector<std::unique_ptr<Block>> blocks_;
  bool pumping_ = false;
  bool pump_again_ = false;
};

}  // namespace ddl::collectives
