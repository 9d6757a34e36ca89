#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ddl/broadcast_parameters.hpp"
#include "ddl/checkpoint.hpp"
#include "ddl/gradient_reducer.hpp"
#include "nmt_example/model/parameters.hpp"

namespace nmt {

/// A contiguous tensor in a backend's memory, with a name.
struct NamedView {
  std::string name;
  Tensor tensor;
};

inline ddl::Elements elements_of(const Tensor& tensor) {
  return {tensor.data, static_cast<std::size_t>(tensor.size()), tensor.type};
}

/// A model's parameters, or their gradients, in the order of the layout.
std::vector<NamedView> values_of(const ParameterSet& parameters);
std::vector<NamedView> gradients_of(const ParameterSet& parameters);

/// A backend's tensors in the host's memory, for collectives and checkpoints. If the backend's memory is the
/// host's, these are the tensors themselves. Otherwise they are copies, adjacent in one block, which
/// `download` and `upload` transfer. All tensors have one type. Backend and tensors must outlive this. Not
/// thread-safe.
class HostMirror {
 public:
  /// The copies are zero until they are downloaded or filled.
  HostMirror(Backend& backend, std::vector<NamedView> tensors);

  /// The tensors on the host, valid while this lives.
  [[nodiscard]] std::vector<ddl::Gradient> gradients() const;
  [[nodiscard]] std::vector<ddl::Parameter> parameters() const;
  [[nodiscard]] std::vector<ddl::NamedTensor> tensors() const;

  /// Copies tensor `index`, or all tensors, to the host, after the backend's work so far.
  void download(std::size_t index);
  void download();
  /// Copies all tensors back to the backend; the host's copies may be changed after the call.
  void upload();

 private:
  [[nodiscard]] Tensor on_host(std::size_t index) const;

  Backend& backend_;
  std::vector<NamedView> tensors_;
  std::vector<std::size_t> offsets_;  // in bytes
  std::size_t bytes_ = 0;
  std::shared_ptr<void> copies_;  // null if the host can use the tensors themselves
};

}  // namespace nmt
