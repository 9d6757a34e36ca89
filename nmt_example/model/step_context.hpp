#pragma once

#include <cstdint>

#include "nmt_example/backend/backend.hpp"

namespace nmt {

/// Rate and random key of a step's dropout; the rate is 0 in evaluation and inference.
struct DropoutSettings {
  double rate = 0;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

/// The step that a layer works in.
struct StepContext {
  Backend& backend;
  DropoutSettings dropout;
  std::int64_t sentences = 0;
  Indices samples;  ///< [sentences] number of each sentence in the data set

  void drop(const Tensor& x, const Tensor& y, std::uint32_t site, std::int64_t first_position = 0,
            std::int64_t first_column = 0) const {
    backend.dropout(x, y, {dropout.seed, dropout.step, site}, dropout.rate, samples, first_position,
                    first_column);
  }
};

}  // namespace nmt
