#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddl/data_type.hpp"

namespace nmt {

struct ParameterSpec {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::optional<double> constant;  ///< Every element's first value; without one, they are random.
  std::int64_t offset = 0;         ///< Where it begins in the flat buffers: at a multiple of 16 bytes.
  bool decays = true;              ///< Whether weight decay is for it: not for biases and others of one row.
  int uses = 1;                    ///< How many layers have it; its gradient is final after the last one.

  [[nodiscard]] std::int64_t size() const noexcept { return rows * cols; }
};

/// The parameters of a model, which its layers declare when they are made, in the order in which forward
/// uses them, so that backward finishes their gradients from the last to the first.
struct ParameterLayout {
  std::vector<ParameterSpec> parameters;
  std::int64_t size = 0;  ///< Elements in all.
  /// Elements of the flat buffers. Zeros complete a parameter's rows to a multiple of 8, so that products may
  /// be as wide as tensor cores need; these and other gaps between parameters are in no checkpoint.
  std::int64_t extent = 0;
  std::size_t layers = 0;                    ///< How many layers have a number.
  std::vector<std::uint32_t> dropout_sites;  ///< `DropoutKey::site` of each of the model's dropouts.

  /// Adds a parameter, or one more use of the one that has this name. Returns its index.
  std::size_t declare(const std::string& name, std::int64_t rows, std::int64_t cols,
                      std::optional<double> constant = {});
  /// Gives a layer its number, the same in all networks of a shape: from 1 on.
  std::size_t declare_layer() { return ++layers; }
  /// Adds a dropout. Returns its index.
  std::size_t declare_dropout(std::uint32_t site) {
    dropout_sites.push_back(site);
    return dropout_sites.size() - 1;
  }
  [[nodiscard]] std::size_t index_of(const std::string& name) const;
  [[nodiscard]] bool contains(const std::string& name) const noexcept;
};

/// The table that is printed before training: name, shape, parameters, share; then the totals and the
/// bytes of gradients that every step exchanges.
std::string describe(const ParameterLayout& layout, ddl::DataType gradient_type = ddl::DataType::f32);

}  // namespace nmt
