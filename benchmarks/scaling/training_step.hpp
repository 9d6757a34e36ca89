#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/topology/planner.hpp"
#include "scaling/model_gradients.hpp"

namespace scaling {

/// The texts between separators, at least one.
std::vector<std::string> parts_of(std::string_view text, char separator);

/// How gradients are reduced.
struct Mode {
  std::string name;        ///< "overlap+rows", as `parse` read it.
  bool overlap = true;     ///< Buckets during backward; else one all-reduce after it.
  bool one_chunk = false;  ///< Phases one after the other, without pipelining.
  bool rows = false;       ///< Only the touched rows of embeddings, where that is faster.
  bool sharded = false;    ///< Reduce-scatter during backward, update of a part, all-gather of parameters.
  std::optional<ddl::DataType> wire;  ///< Between hosts.

  /// Reads "overlap", "after" (backward), and with '+' behind it one_chunk, rows, sharded, bf16 or f16.
  static Mode parse(std::string_view text);
};

/// A training step without communication.
struct Compute {
  double ms = 360;         ///< Of one worker, with its update.
  double update_ms = 0;    ///< The part of `ms` that a sharded update divides among workers.
  double words = 0;        ///< Source and target words of a worker's step.
  double spread = 0;       ///< Standard deviation of workers' times, as a share of `ms`.
  std::uint64_t seed = 1;  ///< Of the spread.
};

/// A bucket of a step, in ms from its begin.
struct BucketTimes {
  double ready = 0;
  double begin = 0;
  double end = 0;
};

struct StepTime {
  double ms = 0;                     ///< Of a step; the mean of many, if compute has a spread.
  double reduction_ms = 0;           ///< All collectives of a step, one after the other.
  double hidden = 0;                 ///< Share of them that overlaps with compute.
  double bound_ms = 0;               ///< No plan for one all-reduce of everything takes less.
  ddl::topology::Plan plan;          ///< Of the largest bucket.
  std::vector<BucketTimes> buckets;  ///< In their order; of the last step, if compute has a spread.
};

/// The steps of a number of workers, by host, on a topology.
class TrainingStep {
 public:
  /// `gradients` and `topology` must outlive it. `bucket_bytes` 0: as GradientReducer chooses.
  TrainingStep(const ddl::topology::Topology& topology, int workers, const ModelGradients& gradients,
               std::uint64_t bucket_bytes);

  /// A step: each bucket is reduced when its gradients are ready on the slowest worker and the bucket before
  /// it is reduced. Reductions do not slow compute down. Throws `invalid_argument` for a schedule of too many
  /// transfers.
  StepTime time(const Mode& mode, const Compute& compute);

 private:
  struct Bucket {
    double ready = 0;  // share of compute
    double ms = 0;     // of its reduction
  };

  const std::pair<ddl::topology::Plan, double>& collective(const ddl::topology::PlanRequest& request);
  std::vector<Bucket> buckets(const Mode& mode, double lookups);
  double ms_of(ddl::topology::Collective collective, std::uint64_t bytes, const Mode& mode);
  std::uint64_t reducer_bucket_bytes();
  [[nodiscard]] std::vector<double> slowest_factors(const Compute& compute) const;

  ddl::topology::Planner planner_;
  const ModelGradients& gradients_;
  std::uint64_t bytes_;
  std::uint64_t bucket_bytes_;
  std::map<
      std::tuple<ddl::topology::Collective, std::uint64_t, ddl::DataType, std::optional<ddl::DataType>, bool>,
      std::pair<ddl::topology::Plan, double>>
      known_;
};

}  // namespace scaling
