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

/// The reduction of a model's gradients over all ranks, where the gradients are: in the host's memory, or on
/// a device in the order of the backend's stream. Device memory goes through the host's where the devices
/// cannot be joined, which the log says. Step by step as ddl::GradientReducer: `begin`, `ready` for each
/// gradient, `finish`. Not thread-safe.
class GradientSync {
 public:
  /// Collective; errors are agreed. All must outlive it.
  GradientSync(ddl::Context& context, const Options& options, Backend& backend, Model& model);
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  /// For people: where, and how.
  [[nodiscard]] std::string description() const;

  /// The backend's work from now on is a part of the step that has this name, for the timeline; empty: none.
  void part(std::string_view name) {
    if (link_) link_->part(name, backend_.stream());
  }
  void begin(double weight) { reducer_->begin(weight); }
  /// The backend's work so far has finished gradient `index`. `rows`: of an embedding, those that may hold
  /// anything.
  void ready(std::size_t index, std::optional<std::span<const std::int32_t>> rows);
  /// Runs a micro-batch, `begin` and `ready` among it, whose gradients stay on this rank.
  void accumulate(const std::function<void()>& micro_batch);
  /// The backend's work from now on finds the sums over all ranks.
  ddl::ReducedStep finish();

  /// With --sharded_update: what this rank is to update; see ddl::GradientReducer.
  [[nodiscard]] std::span<const ddl::GradientPiece> shards() const { return reducer_->shards(); }
  /// The backend's work from now on finds the parameters that all ranks have updated.
  void gather();

  [[nodiscard]] std::size_t buckets() const noexcept { return reducer_->buckets(); }
  [[nodiscard]] std::string state() const { return reducer_->state(); }
  void restore(std::string_view state) { reducer_->restore(state); }
  /// What 16-bit wires owe to the next step, to be saved, or to be filled and then taken. Valid until the
  /// next call.
  [[nodiscard]] std::vector<ddl::NamedTensor> residuals();
  void take_residuals();

 private:
  Backend& backend_;
  bool in_rows_;
  std::vector<NamedView> values_;         // the model's
  std::unique_ptr<DeviceLink> link_;      // null: gradients are reduced in the host's memory
  std::optional<HostMirror> gradients_;   // there
  std::optional<HostMirror> parameters_;  // there, for `gather`
  std::optional<ddl::GradientReducer> reducer_;
  std::vector<std::vector<float>> residuals_;  // of a device, as the host has them
};

/// What --gradient_wire says.
ddl::DataType wire_of(const Options& options);

}  // namespace nmt
