#pragma once

#include <array>
#include <vector>

#include "nmt_example/backend/cpu_kernels.hpp"
#include "nmt_example/backend/tensor.hpp"

namespace nmt::cpu {

/// Rows of tensors as fp32 for one thread: those of fp32 tensors where they are, those of 16-bit ones in
/// copies. Kernels know fp32 alone; what they compute is rounded when a row is put back.
class Rows {
 public:
  /// The row's values. Null for a tensor without memory. `slot`: which of the thread's copies to use; the
  /// next call with the same one replaces it.
  const float* read(const Tensor& x, std::int64_t r, std::size_t slot) { return take(x, r, slot, true); }
  /// The row, to be read and written; call `put` afterwards.
  float* edit(const Tensor& x, std::int64_t r, std::size_t slot) { return take(x, r, slot, true); }
  /// The row, to be written as a whole; call `put` afterwards.
  float* write(const Tensor& x, std::int64_t r, std::size_t slot) { return take(x, r, slot, false); }
  /// Rounds what is in the copy to the tensor's row.
  void put(const Tensor& x, std::int64_t r, std::size_t slot) {
    if (x.data == nullptr || x.type == ddl::DataType::f32) return;
    narrow(copies_[slot].data(), x.as<std::uint16_t>() + r * x.stride, x.cols);
  }

 private:
  float* take(const Tensor& x, std::int64_t r, std::size_t slot, bool reads) {
    if (x.data == nullptr) return nullptr;
    if (x.type == ddl::DataType::f32) return x.as<float>() + r * x.stride;
    std::vector<float>& copy = copies_[slot];
    if (copy.size() < static_cast<std::size_t>(x.cols)) copy.resize(static_cast<std::size_t>(x.cols));
    if (reads) widen(x.as<std::uint16_t>() + r * x.stride, copy.data(), x.cols);
    return copy.data();
  }

  std::array<std::vector<float>, 12> copies_;
};

/// The calling thread's.
inline Rows& rows_of_thread() {
  static thread_local Rows rows;
  return rows;
}

}  // namespace nmt::cpu
