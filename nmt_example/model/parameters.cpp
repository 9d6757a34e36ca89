#include "nmt_example/model/parameters.hpp"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

namespace nmt {
namespace {

double unit_interval(std::uint32_t word) { return (static_cast<double>(word) + 0.5) / 4294967296.0; }

/// Of a normal distribution that is cut at two standard deviations.
constexpr double deviation_within_two = 0.87962566103423978;

/// Box and Muller, 1958.
std::array<double, 4> normal_draws(const std::array<std::uint32_t, 4>& words) {
  std::array<double, 4> draws{};
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2.0 * std::log(unit_interval(words[pair])));
    const double angle = 2.0 * std::numbers::pi * unit_interval(words[pair + 1]);
    draws[pair] = radius * std::cos(angle);
    draws[pair + 1] = radius * std::sin(angle);
  }
  return draws;
}

}  // namespace

ParameterSet::ParameterSet(Backend& backend, ParameterLayout layout, std::shared_ptr<void> gradients,
                           std::optional<ddl::DataType> gradient_type)
    : layout_(std::move(layout)),
      type_(backend.type()),
      gradient_type_(gradient_type.value_or(type_)),
      values_(backend.allocate(static_cast<std::size_t>(layout_.extent) * ddl::size_of(type_))),
      gradients_(std::move(gradients)) {}

Tensor ParameterSet::view(void* base, std::size_t index, ddl::DataType type) const {
  const ParameterSpec& parameter = layout_.parameters.at(index);
  if (base == nullptr) return {};
  return {static_cast<std::byte*>(base) + static_cast<std::size_t>(parameter.offset) * ddl::size_of(type),
          parameter.rows, parameter.cols, parameter.cols, type};
}

void ParameterSet::initialize(Backend& backend, InitOp operation, double weight, std::uint64_t seed) {
  std::vector<float> host;
  for (std::size_t index = 0; index < count(); ++index) {
    const ParameterSpec& parameter = layout_.parameters[index];
    host.assign(static_cast<std::size_t>(parameter.size()),
                static_cast<float>(parameter.constant.value_or(0)));
    if (!parameter.constant) {
      const double fans = static_cast<double>(parameter.rows + parameter.cols);
      const bool normal = operation == InitOp::glorot_normal;
      const double scale = normal ? std::sqrt(2.0 / fans) / deviation_within_two
                           : operation == InitOp::glorot_uniform ? std::sqrt(6.0 / fans)
                                                                 : weight;
      const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed),
                                             static_cast<std::uint32_t>(seed >> 32)};
      for (std::size_t i = 0; i < host.size(); i += 4) {
        const auto words = [&](std::uint32_t attempt) {
          return philox(
              {static_cast<std::uint32_t>(i / 4), static_cast<std::uint32_t>(index), 0x696e6974u, attempt},
              key);
        };
        std::array<double, 4> draws{};
        if (normal) {
          draws = normal_draws(words(0));
          for (std::size_t k = 0; k < 4; ++k) {
            for (std::uint32_t attempt = 1; std::abs(draws[k]) > 2; ++attempt)
              draws[k] = normal_draws(words(attempt))[k];
          }
        } else {
          for (std::size_t k = 0; k < 4; ++k) draws[k] = 2.0 * unit_interval(words(0)[k]) - 1.0;
        }
        for (std::size_t k = 0; k < 4 && i + k < host.size(); ++k)
          host[i + k] = static_cast<float>(scale * draws[k]);
      }
    }
    backend.upload(value(index), host);
  }
  backend.parameters_changed();
}

}  // namespace nmt
