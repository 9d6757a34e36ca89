#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ddl/data_type.hpp"
#include "ddl/error.hpp"

namespace ddl {

/// A view of an array of elements of one `DataType`. Does not own the memory, which must stay in place while
/// the view is used.
class Elements {
 public:
  /// No elements.
  Elements() = default;
  /// The elements of a span.
  template <Element T, std::size_t Extent>
  Elements(std::span<T, Extent> values) : Elements(values.data(), values.size(), data_type_of<T>()) {}
  /// The elements of a vector, until it reallocates.
  template <Element T>
  Elements(std::vector<T>& values) : Elements(std::span<T>(values)) {}
  /// `count` elements from `data` on.
  template <Element T>
  Elements(T* data, std::size_t count) : Elements(data, count, data_type_of<T>()) {}
  /// `count` elements of `type` from `data` on.
  Elements(void* data, std::size_t count, DataType type) : data_(data), count_(count), type_(type) {}

  /// Address of the first element.
  [[nodiscard]] void* data() const noexcept { return data_; }
  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// Type of the elements.
  [[nodiscard]] DataType type() const noexcept { return type_; }
  /// The memory of the elements.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(data_), count_ * size_of(type_)};
  }
  /// The first `count` elements; not checked.
  [[nodiscard]] Elements first(std::size_t count) const noexcept { return {data_, count, type_}; }
  /// Elements [`first`, `first` + `count`); not checked.
  [[nodiscard]] Elements subspan(std::size_t first, std::size_t count) const noexcept {
    return {static_cast<std::byte*>(data_) + first * size_of(type_), count, type_};
  }
  /// The elements as a span of `T`. Throws `invalid_argument` if that is not their type.
  template <Element T>
  [[nodiscard]] std::span<T> as() const {
    if (data_type_of<T>() == type_) return {static_cast<T*>(data_), count_};
    throw Error(ErrorCode::invalid_argument, "found elements of " + std::string(to_string(type_)) +
                                                 ", expected " + std::string(to_string(data_type_of<T>())));
  }

 private:
  void* data_ = nullptr;
  std::size_t count_ = 0;
  DataType type_ = DataType::f32;
};

/// A read-only view of an array of elements; otherwise as `Elements`.
class ConstElements {
 public:
  /// The elements of a span.
  template <Element T, std::size_t Extent>
  ConstElements(std::span<const T, Extent> values)
      : ConstElements(values.data(), values.size(), data_type_of<T>()) {}
  /// The elements of a span.
  template <Element T, std::size_t Extent>
  ConstElements(std::span<T, Extent> values)
      : ConstElements(values.data(), values.size(), data_type_of<T>()) {}
  /// The elements of a vector, until it reallocates.
  template <Element T>
  ConstElements(const std::vector<T>& values) : ConstElements(std::span<const T>(values)) {}
  /// The elements of `values`.
  ConstElements(const Elements& values) : ConstElements(values.data(), values.size(), values.type()) {}
  /// `count` elements from `data` on.
  template <Element T>
  ConstElements(const T* data, std::size_t count) : ConstElements(data, count, data_type_of<T>()) {}
  /// `count` elements of `type` from `data` on.
  ConstElements(const void* data, std::size_t count, DataType type)
      : data_(data), count_(count), type_(type) {}

  /// Address of the first element.
  [[nodiscard]] const void* data() const noexcept { return data_; }
  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// Type of the elements.
  [[nodiscard]] DataType type() const noexcept { return type_; }

 private:
  const void* data_;
  std::size_t count_;
  DataType type_;
};

}  // namespace ddl
