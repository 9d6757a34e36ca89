#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "ddl/data_type.hpp"

namespace nmt {

/// A view of a matrix in a backend's memory: row-major, with `stride` elements from row to row. Sequences are
/// time-major: row t * batch + b is step t of sentence b.
struct Tensor {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
  ddl::DataType type = ddl::DataType::f32;

  [[nodiscard]] bool empty() const noexcept { return rows == 0 || cols == 0; }
  [[nodiscard]] bool contiguous() const noexcept { return stride == cols || rows <= 1; }
  [[nodiscard]] std::int64_t size() const noexcept { return rows * cols; }

  [[nodiscard]] Tensor row_range(std::int64_t begin, std::int64_t count) const noexcept {
    assert(begin >= 0 && begin + count <= rows);
    return {at(begin * stride), count, cols, stride, type};
  }
  [[nodiscard]] Tensor col_range(std::int64_t begin, std::int64_t count) const noexcept {
    assert(begin >= 0 && begin + count <= cols);
    return {at(begin), rows, count, stride, type};
  }
  /// The same elements in another shape; contiguous tensors only.
  [[nodiscard]] Tensor reshaped(std::int64_t new_rows, std::int64_t new_cols) const noexcept {
    assert(contiguous() && new_rows * new_cols == size());
    return {data, new_rows, new_cols, new_cols, type};
  }
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data);
  }

 private:
  /// Numbers, because `data` is null where memory is only counted.
  [[nodiscard]] void* at(std::int64_t element) const noexcept {
    const auto offset = static_cast<std::uintptr_t>(element) * ddl::size_of(type);
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(data) + offset);
  }

 public:
  Tensor() = default;
  Tensor(void* data_, std::int64_t rows_, std::int64_t cols_, std::int64_t stride_, ddl::DataType type_)
      : data(data_), rows(rows_), cols(cols_), stride(stride_), type(type_) {}
};

/// The stride of rows that begin at multiples of 16 bytes, as tensor cores need, whatever the type.
constexpr std::int64_t aligned_stride(std::int64_t cols) noexcept { return (cols + 7) / 8 * 8; }

/// A view of 32-bit integers (token ids, lengths, sample numbers) in a backend's memory.
struct Indices {
  std::int32_t* data = nullptr;
  std::int64_t size = 0;

  [[nodiscard]] Indices range(std::int64_t begin, std::int64_t count) const noexcept {
    assert(begin >= 0 && begin + count <= size);
    return {data + begin, count};
  }
};

}  // namespace nmt
