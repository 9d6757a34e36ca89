#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace scaling {

/// The gradient of a parameter, and when backward has finished it.
struct Gradient {
  std::string name;
  std::size_t elements = 0;  ///< f32
  std::size_t row_width =
      0;             ///< Elements of a row if a step touches few rows, as in an embedding; 0: no rows.
  double ready = 1;  ///< Share of a step's compute, from 0 to 1, after which it is finished.
};

/// Gradients in order of registration.
using ModelGradients = std::vector<Gradient>;

/// The article's model (`ddl_nmt --preset=ddl_reference`), with the times of a measured step.
ModelGradients reference_gradients();
/// `count` gradients of equal sizes, `bytes` together, which become ready evenly during the last two thirds
/// of a step, the last first.
ModelGradients equal_gradients(std::size_t count, std::uint64_t bytes);
/// Reads JSON lines with `name`, `elements`, `ready` and, for embeddings, `row_width`. Throws `io` and
/// `corrupt_data`, with the line.
ModelGradients read_gradients(const std::string& path);

/// Makes all of them larger or smaller alike, so that together they have about `bytes` bytes.
void resize(ModelGradients& gradients, std::uint64_t bytes);
std::uint64_t bytes_of(const ModelGradients& gradients);

/// The share of an embedding's rows that any of `lookups` words touches. Words are Zipf-distributed: the k-th
/// most frequent row is k times as rare as the first. Cost: O(rows).
double touched_share(std::size_t rows, double lookups);

}  // namespace scaling
