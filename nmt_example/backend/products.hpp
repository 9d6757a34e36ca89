#pragma once

#include <cstdint>
#include <memory>

#include "nmt_example/backend/backend.hpp"

namespace nmt::cpu {

/// Products by oneDNN's matmul, which are prepared once for each combination of sizes: those of 16-bit
/// matrices, and those with parameters. A parameter is brought into the type of the other factor and the
/// layout that oneDNN likes best, once after it has changed or whenever its copy has given way to others that
/// are used later in a step. Sums are fp32. On a processor for which oneDNN has no products of bf16, these
/// are computed in fp32 from the same rounded values. Not thread-safe.
class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// c = op(a) op(b) + (accumulate ? c : 0), not empty; a and b have the same type. Throws `internal` with
  /// what oneDNN reports.
  void multiply(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
                const Tensor& c);
  /// The same with an fp32 parameter, which gets a's type.
  void multiply_packed(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate,
                       const Tensor& c);
  /// The parameters have other values now.
  void forget() noexcept;
  /// Memory of parameters' copies (of as many as take turns within a step) and of the largest product.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether oneDNN multiplies matrices of bf16 on this processor with its instructions for that.
bool has_fast_bf16();
/// The rate of oneDNN's products of bf16 divided by that of f32's, measured in some milliseconds; 0 without
/// `has_fast_bf16`. An Intel Xeon with AVX512-BF16 and without AMX had 0.5, and 0.2 with other work on its
/// cores.
double speed_of_bf16();

/// The operations a second that oneDNN reaches in a product of these sizes with the second factor packed,
/// alone in a loop of some milliseconds: the limit of what the backend can reach.
double product_rate(std::int64_t rows, std::int64_t cols, std::int64_t inner, ddl::DataType type);

}  // namespace nmt::cpu
