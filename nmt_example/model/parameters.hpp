#pragma once

#include <memory>
#include <optional>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/model/parameter_layout.hpp"
#include "nmt_example/options/choices.hpp"

namespace nmt {

/// A model's parameters and their gradients, each in one flat block of the backend's memory.
class ParameterSet {
 public:
  /// `gradients`: memory for them that the backend can use; null: none, as for translating. `gradient_type`:
  /// by default the backend's.
  ParameterSet(Backend& backend, ParameterLayout layout, std::shared_ptr<void> gradients = nullptr,
               std::optional<ddl::DataType> gradient_type = {});

  [[nodiscard]] const ParameterLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::size_t count() const noexcept { return layout_.parameters.size(); }
  [[nodiscard]] ddl::DataType gradient_type() const noexcept { return gradient_type_; }
  [[nodiscard]] Tensor value(std::size_t index) const { return view(values_.get(), index, type_); }
  [[nodiscard]] Tensor gradient(std::size_t index) const {
    return view(gradients_.get(), index, gradient_type_);
  }
  /// [1, extent]; gaps between parameters are zero.
  [[nodiscard]] Tensor values() const { return {values_.get(), 1, layout_.extent, layout_.extent, type_}; }
  [[nodiscard]] Tensor gradients() const {
    return {gradients_.get(), 1, layout_.extent, layout_.extent, gradient_type_};
  }

  /// Sets every parameter from the seed, its position and the operation: `uniform` in +-weight, or
  /// `glorot_uniform` or `glorot_normal` (cut at two deviations, as TensorFlow's) with fans rows and cols.
  /// A parameter with a constant gets that.
  void initialize(Backend& backend, InitOp operation, double weight, std::uint64_t seed);

 private:
  [[nodiscard]] Tensor view(void* base, std::size_t index, ddl::DataType type) const;

  ParameterLayout layout_;
  ddl::DataType type_, gradient_type_;
  std::shared_ptr<void> values_;
  std::shared_ptr<void> gradients_;
};

}  // namespace nmt
