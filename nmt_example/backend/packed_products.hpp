#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "nmt_example/backend/backend.hpp"

namespace nmt::cpu {

/// Products of a few rows with parameters, by oneDNN's matmul. A parameter is brought into the layout that
/// oneDNN likes best once after it has changed, and serves all products until it changes again. Not
/// thread-safe.
class PackedProducts {
 public:
  PackedProducts();
  ~PackedProducts();
  PackedProducts(const PackedProducts&) = delete;
  PackedProducts& operator=(const PackedProducts&) = delete;

  /// c = a op(parameter) + (accumulate ? c : 0). Throws `internal` with what oneDNN reports.
  void multiply(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate, const Tensor& c);
  /// The parameters have other values now.
  void forget() noexcept { ++version_; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::uint64_t version_ = 1;
};

/// The operations a second that oneDNN reaches in a product of these sizes with the second factor packed,
/// alone in a loop of some milliseconds: the limit of what the backend can reach.
double product_rate(std::int64_t rows, std::int64_t cols, std::int64_t inner);

}  // namespace nmt::cpu
