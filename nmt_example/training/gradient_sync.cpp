#include "nmt_example/training/gradient_sync.hpp"

#include <fmt/format.h>

#include <utility>

#include "ddl/error.hpp"
#include "ddl/log.hpp"

namespace nmt {

namespace {

std::vector<ddl::Gradient> gradients_in_place(Model& model) {
  std::vector<ddl::Gradient> result;
  for (const NamedView& view : gradients_of(model.parameters()))
    result.push_back({view.name, elements_of(view.tensor)});
  return result;
}

/// Declares embeddings as rows, if rows may be sent alone.
std::vector<ddl::Gradient> in_rows(std::vector<ddl::Gradient> gradients, Model& model,
                                   const Options& options) {
  if (!options.sparse_embeddings) return gradients;
  for (ddl::Gradient& gradient : gradients) {
    const ModelShape& shape = model.shape();
    if (shape.tie_output && gradient.name == embedding_name(shape, Side::decoder)) continue;
    if (gradient.name.starts_with("embedding/")) {
      const ParameterLayout& layout = model.parameters().layout();
      gradient.row_width = static_cast<std::size_t>(layout.parameters[layout.index_of(gradient.name)].cols);
    }
  }
  return gradients;
}

/// The device memory of a reducer's tensor.
Tensor tensor_of(const ddl::NamedTensor& values) {
  const std::int64_t count = values.shape.front();
  return {values.bytes.data(), 1, count, count, ddl::DataType::f32};
}

}  // namespace

std::shared_ptr<DeviceLink> connect_devices(ddl::Context& context, const Backend& backend) {
  if (backend.stream() == nullptr) return nullptr;
  try {
    return open_device_link(context);
  } catch (const ddl::Error& error) {
    if (error.code() != ddl::ErrorCode::unsupported || context.options().strict) throw;
    context.log().notice(fmt::format("gradients go through the host's memory, because {}", error.what()));
    return nullptr;
  }
}

GradientSync::GradientSync(ddl::Context& context, const Options& options, Backend& backend,
                           std::shared_ptr<DeviceLink> link, Model& model)
    : context_(context),
      backend_(backend),
      in_rows_(options.sparse_embeddings),
      values_(values_of(model.parameters())),
      link_(std::move(link)) {
  const ddl::GradientReducerOptions how = {
      .gradients = ddl::GradientKind::sum,
      .wire = options.gradient_wire,
      .sharded_update = options.sharded_update,
      .leave_sums = true,
      .narrow_sums = model.parameters().gradient_type() != backend.type()};
  if (link_) {
    reducer_.emplace(link_->make_reducer(in_rows(gradients_in_place(model), model, options), how));
    return;
  }
  outcome_ = backend.allocate(sizeof(ddl::DeviceOutcome));
  gradients_.emplace(backend, gradients_of(model.parameters()));
  if (options.sharded_update) parameters_.emplace(backend, values_);
  reducer_.emplace(context, in_rows(gradients_->gradients(), model, options), how);
}

std::string GradientSync::description() const {
  if (link_) return link_->description();
  return backend_.host_accessible() ? "in the host's memory" : "through the host's memory";
}

void GradientSync::ready(std::size_t index, std::optional<std::span<const std::int32_t>> rows) {
  if (gradients_) gradients_->download(index);
  rows&& in_rows_ ? reducer_->ready(index, *rows, backend_.stream())
                  : reducer_->ready(index, backend_.stream());
}

void GradientSync::accumulate(const std::function<void()>& micro_batch) {
  const auto scope = reducer_->no_sync();
  micro_batch();
  link_ ? reducer_->finish(backend_.stream()) : static_cast<void>(reducer_->wait());
}

const ddl::DeviceOutcome* GradientSync::finish() {
  if (link_) {
    reducer_->finish(backend_.stream());
    return reducer_->outcome();
  }
  const ddl::ReducedStep step = reducer_->wait();
  gradients_->upload();
  const ddl::DeviceOutcome outcome{step.weight, step.scale, step.norm, step.finite ? 1U : 0U};
  backend_.upload_bytes(outcome_.get(), std::as_bytes(std::span(&outcome, 1)));
  return static_cast<const ddl::DeviceOutcome*>(outcome_.get());
}

void GradientSync::check() {
  if (link_) reducer_->result(backend_.stream());
}

void GradientSync::reduce_over_ranks(const Tensor& values, ddl::ReduceOp op) {
  if (link_) return link_->reduce(values, op, backend_.stream());
  sums_.resize(static_cast<std::size_t>(values.size()));
  backend_.download(values, std::span(sums_));
  context_.communicator().all_reduce(std::span(sums_), op);
  backend_.upload_bytes(values.data, std::as_bytes(std::span(sums_)));
}

void GradientSync::gather() {
  if (parameters_) {
    parameters_->download();
    reducer_->gather(parameters_->parameters());
    return parameters_->upload();
  }
  std::vector<ddl::Parameter> parameters;
  for (const NamedView& view : values_) parameters.push_back({view.name, elements_of(view.tensor)});
  reducer_->gather(parameters, backend_.stream());
  backend_.parameters_changed();
}

std::vector<ddl::NamedTensor> GradientSync::residuals() {
  std::vector<ddl::NamedTensor> tensors = reducer_->residuals();
  if (!link_) return tensors;
  residuals_.clear();
  for (ddl::NamedTensor& tensor : tensors) {
    std::vector<float>& values = residuals_.emplace_back(static_cast<std::size_t>(tensor.shape.front()));
    backend_.download(tensor_of(tensor), values);
    tensor.bytes = std::as_writable_bytes(std::span(values));
  }
  return tensors;
}

void GradientSync::take_residuals() {
  if (!link_) return;
  const std::vector<ddl::NamedTensor> tensors = reducer_->residuals();
  for (std::size_t i = 0; i < tensors.size(); ++i) backend_.upload(tensor_of(tensors[i]), residuals_[i]);
}

}  // namespace nmt
