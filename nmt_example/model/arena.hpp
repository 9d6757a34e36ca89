#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "nmt_example/backend/backend.hpp"

namespace nmt {

/// Hands out a step's working memory from one block that is allocated once. Without a block it only counts
/// bytes, so that the code that takes a step's tensors also measures how much they need.
class Arena {
 public:
  /// `activations`: the type of most tensors; `full`: of those that need more range or precision.
  Arena(ddl::DataType activations, ddl::DataType full) : type_(activations), full_(full) {}

  Tensor take(std::int64_t rows, std::int64_t cols) { return take(rows, cols, type_); }
  Tensor take_full(std::int64_t rows, std::int64_t cols) { return take(rows, cols, full_); }
  Tensor take(std::int64_t rows, std::int64_t cols, ddl::DataType type) {
    return {take_bytes(static_cast<std::size_t>(rows * cols) * ddl::size_of(type)), rows, cols, cols, type};
  }
  Indices take_indices(std::int64_t count) {
    return {static_cast<std::int32_t*>(take_bytes(static_cast<std::size_t>(count) * sizeof(std::int32_t))),
            count};
  }

  /// Gives back everything that was taken so far.
  void reset() noexcept { used_ = 0; }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] const void* block() const noexcept { return block_.get(); }
  /// Makes room for at least so many bytes, and gives back everything.
  void reserve(Backend& backend, std::size_t bytes) {
    used_ = 0;
    if (bytes <= capacity_) return;
    block_.reset();
    block_ = backend.allocate(bytes);
    capacity_ = bytes;
  }

  /// Aligned to 64 bytes.
  void* take_bytes(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    const std::size_t begin = used_;
    used_ += (bytes + alignment - 1) / alignment * alignment;
    if (block_ == nullptr) return nullptr;
    assert(used_ <= capacity_);
    return static_cast<std::byte*>(block_.get()) + begin;
  }

 private:
  ddl::DataType type_, full_;
  std::shared_ptr<void> block_;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
};

/// Values for several places in a stretch of a backend's memory, which one copy brings there.
class Staging {
 public:
  /// The stretch is [first, last). Places that nothing is put in become 0.
  void begin(void* first, const void* last) {
    first_ = static_cast<std::byte*>(first);
    bytes_.assign(static_cast<std::size_t>(static_cast<const std::byte*>(last) - first_), std::byte{});
  }
  void put(const void* place, std::span<const std::byte> values) {
    const auto at = static_cast<std::size_t>(static_cast<const std::byte*>(place) - first_);
    assert(at + values.size() <= bytes_.size());
    std::copy(values.begin(), values.end(), bytes_.data() + at);
  }
  void put(const Indices& place, std::span<const std::int32_t> values) {
    assert(static_cast<std::int64_t>(values.size()) <= place.size);
    put(place.data, std::as_bytes(values));
  }
  void upload(Backend& backend) const { backend.upload_bytes(first_, bytes_); }

 private:
  std::byte* first_ = nullptr;
  std::vector<std::byte> bytes_;
};

}  // namespace nmt
