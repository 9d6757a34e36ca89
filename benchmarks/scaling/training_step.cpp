#include "scaling/training_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "ddl/error.hpp"
#include "ddl/gradients/buckets.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/simulator.hpp"

namespace scaling {

using ddl::topology::Collective;
using ddl::topology::Plan;
using ddl::topology::PlanRequest;
using ddl::topology::Topology;

namespace {

constexpr double most_transfers = 2e7;
constexpr int steps_with_spread = 200;

/// Multiples of what all collectives accept: a piece of one element for each worker.
std::uint64_t whole_pieces(std::uint64_t bytes, int workers) {
  const std::uint64_t unit = sizeof(float) * static_cast<std::uint64_t>(workers);
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Mode Mode::parse(std::string_view text) {
  Mode mode;
  mode.name = text;
  const std::vector<std::string> parts = parts_of(text, '+');
  bool known = parts[0] == "overlap" || parts[0] == "after";
  mode.overlap = parts[0] == "overlap";
  for (const std::string& part : std::span(parts).subspan(1)) {
    if (part == "one_chunk") {
      mode.one_chunk = true;
    } else if (part == "rows") {
      mode.rows = true;
    } else if (part == "sharded") {
      mode.sharded = true;
    } else if (part == "bf16" || part == "f16") {
      mode.wire = part == "bf16" ? ddl::DataType::bf16 : ddl::DataType::f16;
    } else {
      known = false;
    }
  }
  if (known) return mode;
  ddl::tools::refuse_usage(
      "--modes: found '{}', expected overlap or after, and perhaps +one_chunk, +rows, +sharded, +bf16, +f16",
      text);
}

TrainingStep::TrainingStep(const Topology& topology, int workers, const ModelGradients& gradients,
                           std::uint64_t bucket_bytes)
    : planner_(topology, place_by_host(topology, workers)),
      gradients_(gradients),
      bytes_(bytes_of(gradients)),
      bucket_bytes_(bucket_bytes) {
  if (bucket_bytes_ == 0) bucket_bytes_ = reducer_bucket_bytes();
}

StepTime TrainingStep::time(const Mode& mode, const Compute& compute) {
  const auto workers = static_cast<double>(planner_.placement().size());
  const std::vector<Bucket> all = buckets(mode, compute.words / 2 * workers);
  StepTime result;
  result.plan =
      collective({.bytes = mode.overlap ? std::min(bucket_bytes_, bytes_) : bytes_, .wire = mode.wire}).first;
  result.bound_ms = collective({.bytes = bytes_}).first.bound_us / 1e3;
  const double gather_ms = mode.sharded ? ms_of(Collective::all_gather, bytes_, mode) : 0;
  const double saved_ms = mode.sharded ? compute.update_ms * (1 - 1 / workers) : 0;
  for (const Bucket& bucket : all) result.reduction_ms += bucket.ms;
  result.reduction_ms += gather_ms;
  const std::vector<double> factors = slowest_factors(compute);
  double shown_ms = 0;
  for (const double factor : factors) {
    // The update follows backward and the last reduction.
    const double before_update = factor * compute.ms - compute.update_ms;
    double reduced = 0;
    result.buckets.clear();
    for (const Bucket& bucket : all) {
      const double ready = mode.overlap ? bucket.ready * before_update : before_update;
      const double begin = std::max(reduced, ready);
      reduced = begin + bucket.ms;
      result.buckets.push_back({ready, begin, reduced});
    }
    const double waiting = std::max(reduced - before_update, 0.0) + gather_ms;
    shown_ms += waiting;
    result.ms += factor * compute.ms - saved_ms + waiting;
  }
  const auto count = static_cast<double>(factors.size());
  result.ms /= count;
  if (result.reduction_ms > 0)
    result.hidden = std::clamp(1 - shown_ms / count / result.reduction_ms, 0.0, 1.0);
  return result;
}

std::vector<TrainingStep::Bucket> TrainingStep::buckets(const Mode& mode, double lookups) {
  if (planner_.placement().size() == 1) return {};
  const Collective collective = mode.sharded ? Collective::reduce_scatter : Collective::all_reduce;
  Mode in_f32 = mode;
  in_f32.wire.reset();
  std::vector<std::size_t> counts, order;
  std::vector<std::uint8_t> by_rows;
  std::vector<double> rows_ms(gradients_.size());
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const Gradient& gradient = gradients_[i];
    counts.push_back(gradient.elements);
    by_rows.push_back(0);
    if (!mode.rows || gradient.row_width == 0) continue;
    // A byte for each row says which rows were touched; then these rows are reduced.
    const std::size_t rows = gradient.elements / gradient.row_width;
    const auto touched = static_cast<std::uint64_t>(touched_share(rows, lookups) * static_cast<double>(rows));
    const double ms = this->collective({.bytes = rows, .type = ddl::DataType::u8}).second +
                      ms_of(Collective::all_reduce,
                            std::max<std::uint64_t>(touched, 1) * gradient.row_width * sizeof(float), in_f32);
    rows_ms[i] = std::min(ms, ms_of(collective, gradient.elements * sizeof(float), mode));
    by_rows[i] = 1;
  }
  order = ddl::reverse_order(gradients_.size());
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return gradients_[i].ready; });
  const std::uint64_t bucket_bytes = mode.overlap ? bucket_bytes_ : bytes_;
  std::vector<Bucket> result;
  for (const ddl::BucketLayout& layout : ddl::bucket_layout(
           {.counts = counts, .rows = by_rows, .order = order, .bucket_bytes = bucket_bytes})) {
    Bucket bucket;
    for (const ddl::GradientPiece& piece : layout.pieces)
      bucket.ready = std::max(bucket.ready, gradients_[piece.gradient].ready);
    bucket.ms = layout.rows ? rows_ms[layout.pieces[0].gradient] : ms_of(collective, layout.bytes(), mode);
    result.push_back(bucket);
  }
  return result;
}

double TrainingStep::ms_of(Collective collective, std::uint64_t bytes, const Mode& mode) {
  PlanRequest request{.collective = collective, .bytes = bytes};
  if (collective != Collective::all_gather) request.wire = mode.wire;
  if (collective != Collective::all_reduce) {
    request.bytes = whole_pieces(bytes, static_cast<int>(planner_.placement().size()));
  }
  if (mode.one_chunk) request.chunks = 1;
  return this->collective(request).second;
}

/// The plan, and its time in ms: predicted where carriers execute it, whose calls the simulator does not
/// know; else simulated.
const std::pair<Plan, double>& TrainingStep::collective(const PlanRequest& request) {
  const auto key =
      std::tuple(request.collective, request.bytes, request.type, request.wire, request.chunks.has_value());
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  Plan plan = planner_.choose(request);
  double us = plan.predicted_us;
  if (!planner_.topology().carriers()) {
    if (const double transfers = planner_.transfers(plan); transfers > most_transfers) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("{} workers: found a schedule of about {:.2g} transfers, expected at most "
                                   "{:.2g}; give fewer workers, or smaller --buckets",
                                   planner_.placement().size(), transfers, most_transfers));
    }
    const std::size_t element = size_of(plan.type);
    const auto schedule =
        schedule_to_run(plan, request.bytes / element, 0, planner_.topology(), planner_.placement());
    us = simulate(planner_.topology(), planner_.placement(), schedule, {.element_bytes = element}).total_us;
  }
  return known_.emplace(key, std::pair(std::move(plan), us / 1e3)).first->second;
}

std::uint64_t TrainingStep::reducer_bucket_bytes() {
  const double bucket_us = planner_.topology().carriers() ? ddl::device_bucket_us : ddl::host_bucket_us;
  return ddl::least_exposed_bytes(bytes_, bucket_us,
                                  [&](std::size_t bytes) { return planner_.choose({.bytes = bytes}); });
}

/// In each of many steps, the compute time of the slowest worker relative to the mean.
std::vector<double> TrainingStep::slowest_factors(const Compute& compute) const {
  if (compute.spread == 0) return {1};
  std::mt19937_64 random(compute.seed);
  std::normal_distribution<double> normal(1, compute.spread);
  std::vector<double> factors(steps_with_spread);
  for (double& factor : factors) {
    factor = 0.1;
    for (std::size_t i = 0; i < planner_.placement().size(); ++i) factor = std::max(factor, normal(random));
  }
  return factors;
}

}  // namespace scaling
