#include <cmath>

#include "nmt_example/backend/cell_operations.hpp"
#include "nmt_example/backend/cpu_kernels.hpp"
#include "nmt_example/backend/cpu_math.hpp"

namespace nmt::cpu {
namespace {

struct FloatMath {
  NMT_INLINE static float sigmoid(float x) { return cpu::sigmoid(x); }
  NMT_INLINE static float tanh(float x) { return tanh_approx(x); }
  NMT_INLINE static float sqrt(float x) { return std::sqrt(x); }
};

}  // namespace

NMT_VECTORIZED void cell_rows(CellOperation operation, const CellRows& rows, std::int64_t begin,
                              std::int64_t end) {
  with_rows_of(
      operation, [&]<typename Operation>(const Operation&) __attribute__((always_inline)) {
        for (std::int64_t r = begin; r < end; ++r)
          compute_cell_row<Operation, FloatMath, CellRow<float>>(rows, r, OneThread());
      });
}

}  // namespace nmt::cpu
