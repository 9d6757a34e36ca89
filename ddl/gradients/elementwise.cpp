#include "ddl/gradients/elementwise.hpp"

#include <array>
#include <cmath>

#include "ddl/float16.hpp"

namespace ddl::elementwise {
namespace {

template <typename Narrow>
void encode_as(std::span<const float> values, std::span<const float> residual, std::span<std::uint16_t> wire,
               std::span<float> left) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float wanted = values[i] + residual[i];
    const Narrow sent(wanted);
    const float rest = wanted - static_cast<float>(sent);
    wire[i] = sent.bits;
    left[i] = std::isfinite(rest) ? rest : 0.0f;
  }
}

template <typename Narrow>
void decode_as(std::span<const std::uint16_t> wire, std::span<float> values) noexcept {
  for (std::size_t i = 0; i < wire.size(); ++i) values[i] = static_cast<float>(Narrow::from_bits(wire[i]));
}

}  // namespace

void scale(std::span<float> values, double factor) noexcept {
  for (float& value : values) value = static_cast<float>(value * factor);
}

// A loop of its own: one for memory that may overlap would not be vectorised.
void scale_into(std::span<float> target, std::span<const float> source, double factor) noexcept {
  float* __restrict to = target.data();
  const float* __restrict from = source.data();
  for (std::size_t i = 0; i < target.size(); ++i) to[i] = static_cast<float>(from[i] * factor);
}

void add_scaled(std::span<float> target, std::span<const float> source, double factor) noexcept {
  float* __restrict to = target.data();
  const float* __restrict from = source.data();
  for (std::size_t i = 0; i < target.size(); ++i) to[i] = static_cast<float>(to[i] + from[i] * factor);
}

double sum_of_squares(std::span<const float> values) noexcept {
  constexpr std::size_t lanes = 16;
  std::array<double, lanes> sums{};
  const std::size_t whole = values.size() - values.size() % lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  for (const float value : values.subspan(whole)) sum += static_cast<double>(value) * value;
  return sum;
}

void encode(DataType type, std::span<const float> values, std::span<const float> residual,
            std::span<std::uint16_t> wire, std::span<float> left) noexcept {
  if (type == DataType::bf16) return encode_as<bfloat16>(values, residual, wire, left);
  encode_as<float16>(values, residual, wire, left);
}

void decode(DataType type, std::span<const std::uint16_t> wire, std::span<float> values) noexcept {
  if (type == DataType::bf16) return decode_as<bfloat16>(wire, values);
  decode_as<float16>(wire, values);
}

}  // namespace ddl::elementwise
