#include "nmt_example/model/parameter_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "ddl/error.hpp"
#include "nmt_example/backend/tensor.hpp"

namespace nmt {
namespace {

std::string with_separators(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (std::int64_t at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

}  // namespace

std::size_t ParameterLayout::declare(const std::string& name, std::int64_t rows, std::int64_t cols,
                                     std::optional<double> constant) {
  if (contains(name)) {
    const std::size_t index = index_of(name);
    assert(parameters[index].rows == rows && parameters[index].cols == cols);
    ++parameters[index].uses;
    return index;
  }
  parameters.push_back({name, rows, cols, constant, aligned_stride(extent), rows > 1});
  size += rows * cols;
  extent = parameters.back().offset + (rows > 1 ? aligned_stride(rows) : rows) * cols;
  return parameters.size() - 1;
}

std::size_t ParameterLayout::index_of(const std::string& name) const {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name == name) return i;
  }
  throw ddl::Error(ddl::ErrorCode::internal, "the model has no parameter named " + name);
}

bool ParameterLayout::contains(const std::string& name) const noexcept {
  return std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == name; });
}

std::string describe(const ParameterLayout& layout, ddl::DataType gradient_type) {
  std::size_t width = 9;
  for (const ParameterSpec& parameter : layout.parameters) width = std::max(width, parameter.name.size());
  std::string text =
      fmt::format("{:<{}}  {:>15}  {:>13}  {:>6}\n", "parameter", width, "shape", "elements", "share");
  for (const ParameterSpec& parameter : layout.parameters) {
    text +=
        fmt::format("{:<{}}  {:>15}  {:>13}  {:>5.1f}%\n", parameter.name, width,
                    fmt::format("{} x {}", parameter.rows, parameter.cols), with_separators(parameter.size()),
                    100.0 * static_cast<double>(parameter.size()) / static_cast<double>(layout.size));
  }
  text += fmt::format("parameters: {}\ngradient bytes per step: {} ({})\n", with_separators(layout.size),
                      with_separators(layout.size * static_cast<std::int64_t>(ddl::size_of(gradient_type))),
                      gradient_type == ddl::DataType::f32 ? "fp32" : ddl::to_string(gradient_type));
  return text;
}

}  // namespace nmt
