#include "nmt_example/training/host_mirror.hpp"

#include <fmt/format.h>

#include "ddl/error.hpp"

namespace nmt {
namespace {

std::size_t size_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.size()); }

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.as<std::byte>(), size_of(tensor) * ddl::size_of(tensor.type)};
}

}  // namespace

std::vector<NamedView> values_of(const ParameterSet& parameters) {
  std::vector<NamedView> views;
  for (std::size_t i = 0; i < parameters.count(); ++i)
    views.push_back({parameters.layout().parameters[i].name, parameters.value(i)});
  return views;
}

std::vector<NamedView> gradients_of(const ParameterSet& parameters) {
  std::vector<NamedView> views;
  for (std::size_t i = 0; i < parameters.count(); ++i)
    views.push_back({parameters.layout().parameters[i].name, parameters.gradient(i)});
  return views;
}

HostMirror::HostMirror(Backend& backend, std::vector<NamedView> tensors)
    : backend_(backend), tensors_(std::move(tensors)) {
  for (const NamedView& view : tensors_) {
    offsets_.push_back(bytes_);
    bytes_ += bytes_of(view.tensor).size();
    if (backend.host_accessible() || view.tensor.contiguous()) continue;
    throw ddl::Error(ddl::ErrorCode::internal,
                     fmt::format("tensor {} of {} cannot be copied to the host: it must be contiguous",
                                 view.name, backend.name()));
  }
  if (!backend.host_accessible()) copies_ = backend.allocate_host(bytes_);
}

Tensor HostMirror::on_host(std::size_t index) const {
  Tensor tensor = tensors_[index].tensor;
  if (copies_ != nullptr) tensor.data = static_cast<std::byte*>(copies_.get()) + offsets_[index];
  return tensor;
}

std::vector<ddl::Gradient> HostMirror::gradients() const {
  std::vector<ddl::Gradient> result;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    result.push_back({tensors_[i].name, elements_of(on_host(i))});
  return result;
}

std::vector<ddl::Parameter> HostMirror::parameters() const {
  std::vector<ddl::Parameter> result;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    result.push_back({tensors_[i].name, elements_of(on_host(i))});
  return result;
}

std::vector<ddl::NamedTensor> HostMirror::tensors() const {
  std::vector<ddl::NamedTensor> result;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor tensor = on_host(i);
    result.push_back({tensors_[i].name, tensor.type, {tensor.rows, tensor.cols}, bytes_of(tensor)});
  }
  return result;
}

void HostMirror::download(std::size_t index) {
  if (copies_ != nullptr) backend_.download_bytes(tensors_.at(index).tensor.data, bytes_of(on_host(index)));
}

void HostMirror::download() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) download(i);
}

void HostMirror::upload() {
  for (std::size_t i = 0; copies_ != nullptr && i < tensors_.size(); ++i)
    backend_.upload_bytes(tensors_[i].tensor.data, bytes_of(on_host(i)));
  backend_.parameters_changed();
}

}  // namespace nmt
