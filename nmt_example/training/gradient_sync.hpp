#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "ddl/gradient_reducer.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/device_link.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/training/host_mirror.hpp"

namespace nmt {

/// The connection between the ranks' devices, or null for a backend on the host. If devices cannot be
/// connected, also null, and the log says why, or, with ContextOptions::strict, `unsupported`. Collective.
std::shared_ptr<DeviceLink> connect_devices(ddl::Context& context, const Backend& backend);

/// Reduces a model's gradients over all ranks where they are: in the host's memory, or on a device in the
/// order of the backend's stream. Without a `link`, a device's gradients go through the host's memory. A step
/// is as with ddl::GradientReducer: `begin`, `ready` for each gradient, `finish`. Not thread-safe.
class GradientSync {
 public:
  /// Collective; errors are agreed. All arguments must outlive it.
  GradientSync(ddl::Context& context, const Options& options, Backend& backend,
               std::shared_ptr<DeviceLink> link, Model& model);
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  /// For people: where and how gradients are reduced.
  [[nodiscard]] std::string description() const;

  /// Names the backend's work from now on in the timeline; an empty name ends the part.
  void part(std::string_view name) {
    if (link_) link_->part(name, backend_.stream());
  }
  void begin(double weight) { reducer_->begin(weight); }
  /// The backend's work so far completes gradient `index`. `rows`: an embedding's rows that may not be 0.
  void ready(std::size_t index, std::optional<std::span<const std::int32_t>> rows);
  /// Runs a micro-batch, with its calls of `begin` and `ready`; its gradients stay on this rank.
  void accumulate(const std::function<void()>& micro_batch);
  /// The backend's work from now on sees the sums over all ranks, and the result that is returned, in the
  /// backend's memory, until the next step.
  const ddl::DeviceOutcome* finish();
  /// The same for a step without `begin`, whose weight the device reads, and whose result is `outcome`. Needs
  /// a link.
  void finish(const double* weight) { reducer_->finish(ddl::DeviceWeight{weight}, backend_.stream()); }
  /// Whether a step that ends with this weight can be part of work that the backend records now; the same on
  /// all ranks.
  [[nodiscard]] bool can_be_recorded() const { return link_ && reducer_->can_be_captured(); }
  /// That of the last step.
  [[nodiscard]] const ddl::DeviceOutcome* outcome() const noexcept { return reducer_->outcome(); }
  /// Waits for the last step. Throws what went wrong in the steps so far.
  void check();

  /// Replaces each of the backend's f64 `values` by its reduction over all ranks. Collective.
  void reduce_over_ranks(const Tensor& values, ddl::ReduceOp op);

  /// With --sharded_update: the elements that this rank updates; see ddl::GradientReducer.
  [[nodiscard]] std::span<const ddl::GradientPiece> shards() const { return reducer_->shards(); }
  /// The backend's work from now on sees the parameters that all ranks have updated.
  void gather();

  /// As ddl::GradientReducer.
  [[nodiscard]] std::optional<double> hidden_share() const noexcept { return reducer_->hidden_share(); }
  [[nodiscard]] std::size_t buckets() const noexcept { return reducer_->buckets(); }
  [[nodiscard]] std::size_t packed_bytes() const noexcept { return reducer_->packed_bytes(); }
  [[nodiscard]] std::string state() const { return reducer_->state(); }
  void restore(std::string_view state) { reducer_->restore(state); }
  /// The rounding residuals of 16-bit wires, which the next step adds: to be saved, or to be filled before
  /// `take_residuals`. Valid until the next call.
  [[nodiscard]] std::vector<ddl::NamedTensor> residuals();
  void take_residuals();

 private:
  ddl::Context& context_;
  Backend& backend_;
  bool in_rows_;
  std::vector<NamedView> values_;         // the model's parameters
  std::shared_ptr<DeviceLink> link_;      // null: gradients are reduced in the host's memory
  std::optional<HostMirror> gradients_;   // on the host, if there is no link
  std::optional<HostMirror> parameters_;  // on the host, for `gather`
  std::optional<ddl::GradientReducer> reducer_;
  std::shared_ptr<void> outcome_;              // of the last step, if there is no link
  std::vector<double> sums_;                   // host copies of `reduce_over_ranks`, if there is no link
  std::vector<std::vector<float>> residuals_;  // host copies of a device's residuals
};

}  // namespace nmt
