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
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// The reduction of a model's gradients over all ranks, where the gradients are: in the host's memory, or on
/// a device. Step by step as ddl::GradientReducer: `begin`, `ready` for each gradient, `finish`. Not
/// thread-safe.
class GradientSync {
 public:
  GradientSync() = default;
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;
  virtual ~GradientSync() = default;

  /// For people: where, and how.
  [[nodiscard]] virtual std::string description() const = 0;

  /// The backend's work from now on is a part of the step that has this name, for the timeline; empty: none.
  virtual void part(std::string_view /*name*/) {}
  virtual void begin(double weight) = 0;
  /// The backend's work so far has finished gradient `index`. `rows`: of an embedding, those that may hold
  /// anything.
  virtual void ready(std::size_t index, std::optional<std::span<const std::int32_t>> rows) = 0;
  /// Runs a micro-batch, `begin` and `ready` among it, whose gradients stay on this rank.
  virtual void accumulate(const std::function<void()>& micro_batch) = 0;
  /// The backend's work from now on finds the sums over all ranks.
  virtual ddl::ReducedStep finish() = 0;

  /// What this rank is to update, if that is not all; see ddl::GradientReducer.
  [[nodiscard]] virtual std::span<const ddl::GradientShard> shards() const { return {}; }
  virtual void gather(const std::vector<ddl::Parameter>& /*parameters*/) {}

  [[nodiscard]] virtual std::size_t buckets() const noexcept = 0;
  [[nodiscard]] virtual std::string state() const = 0;
  virtual void restore(std::string_view state) = 0;
  /// What 16-bit wires owe to the next step, to be saved, or to be filled and then taken. Valid until the
  /// next call.
  [[nodiscard]] virtual std::vector<ddl::NamedTensor> residuals() { return {}; }
  virtual void take_residuals() {}
};

/// On the device if the backend has one and the options are such that it can; else by the host. Collective;
/// errors are agreed. All must outlive it.
std::unique_ptr<GradientSync> make_gradient_sync(ddl::Context& context, const Options& options,
                                                 Backend& backend, Model& model);

/// By the host: device memory is copied there and back.
std::unique_ptr<GradientSync> make_host_gradient_sync(ddl::Context& context, const Options& options,
                                                      Backend& backend, Model& model);

/// On the device, in the order of the backend's stream. Throws `unsupported`, agreed, where the ranks'
/// devices cannot, or in a build without CUDA.
std::unique_ptr<GradientSync> make_device_gradient_sync(ddl::Context& context, const Options& options,
                                                        Backend& backend, Model& model);

/// What --gradient_wire says.
ddl::DataType wire_of(const Options& options);

}  // namespace nmt
