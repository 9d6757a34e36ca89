#include "nmt_example/training/gradient_sync.hpp"

#include <fmt/format.h>

#include "ddl/log.hpp"
#include "nmt_example/training/host_mirror.hpp"

namespace nmt {

ddl::DataType wire_of(const Options& options) {
  if (options.gradient_wire == "bf16") return ddl::DataType::bf16;
  return options.gradient_wire == "f16" ? ddl::DataType::f16 : ddl::DataType::f32;
}

namespace {

/// Embeddings in rows, if rows may travel alone.
std::vector<ddl::Gradient> gradients_in_rows(const HostMirror& gradients, const Model& model,
                                             const Options& options) {
  std::vector<ddl::Gradient> result = gradients.gradients();
  if (!options.sparse_embeddings) return result;
  for (ddl::Gradient& gradient : result) {
    if (gradient.name.starts_with("embedding/")) {
      gradient.row_width = static_cast<std::size_t>(model.shape().units);
    }
  }
  return result;
}

class HostGradientSync final : public GradientSync {
 public:
  HostGradientSync(ddl::Context& context, const Options& options, Backend& backend, Model& model)
      : is_copied_(!backend.host_accessible()),
        in_rows_(options.sparse_embeddings),
        gradients_(backend, gradients_of(model.parameters())),
        reducer_(context, gradients_in_rows(gradients_, model, options),
                 {.gradients = ddl::GradientKind::sum,
                  .wire = wire_of(options),
                  .sharded_update = options.sharded_update,
                  .leave_sums = true}) {}

  [[nodiscard]] std::string description() const override {
    return is_copied_ ? "through the host's memory" : "in the host's memory";
  }
  void begin(double weight) override { reducer_.begin(weight); }
  void ready(std::size_t index, std::optional<std::span<const std::int32_t>> rows) override {
    gradients_.download(index);
    rows&& in_rows_ ? reducer_.ready(index, *rows) : reducer_.ready(index);
  }
  void accumulate(const std::function<void()>& micro_batch) override {
    const auto scope = reducer_.no_sync();
    micro_batch();
    reducer_.wait();
  }
  ddl::ReducedStep finish() override {
    const ddl::ReducedStep step = reducer_.wait();
    gradients_.upload();
    return step;
  }
  [[nodiscard]] std::span<const ddl::GradientShard> shards() const override { return reducer_.shards(); }
  void gather(const std::vector<ddl::Parameter>& parameters) override { reducer_.gather(parameters); }
  [[nodiscard]] std::size_t buckets() const noexcept override { return reducer_.buckets(); }
  [[nodiscard]] std::string state() const override { return reducer_.state(); }
  void restore(std::string_view state) override { reducer_.restore(state); }
  [[nodiscard]] std::vector<ddl::NamedTensor> residuals() override { return reducer_.residuals(); }

 private:
  bool is_copied_;
  bool in_rows_;
  HostMirror gradients_;
  ddl::GradientReducer reducer_;
};

}  // namespace

std::unique_ptr<GradientSync> make_host_gradient_sync(ddl::Context& context, const Options& options,
                                                      Backend& backend, Model& model) {
  return std::make_unique<HostGradientSync>(context, options, backend, model);
}

std::unique_ptr<GradientSync> make_gradient_sync(ddl::Context& context, const Options& options,
                                                 Backend& backend, Model& model) {
  if (backend.stream() != nullptr) {
    std::string reason = "of --sharded_update";
    if (!options.sharded_update) {
      try {
        return make_device_gradient_sync(context, options, backend, model);
      } catch (const ddl::Error& error) {
        if (error.code() != ddl::ErrorCode::unsupported || context.options().strict) throw;
        reason = error.what();
      }
    }
    context.log().notice(fmt::format("gradients go through the host's memory, because {}", reason));
  }
  return make_host_gradient_sync(context, options, backend, model);
}

}  // namespace nmt
