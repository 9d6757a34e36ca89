#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace ddl::test {

/// Numbers of all magnitudes, infinities and NaNs.
inline std::vector<float> values_of(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value =
        std::ldexp(static_cast<float>(random() % 16'000'000U) - 8e6f, static_cast<int>(random() % 60) - 50);
  }
  const float special[] = {0.0f,
                           -0.0f,
                           1e-42f,
                           65'519.9f,
                           65'520.0f,
                           -3e38f,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
  for (const float value : special) {
    if (count > 0) values[random() % count] = value;
  }
  return values;
}

}  // namespace ddl::test
