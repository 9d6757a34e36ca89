#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ddl/data_type.hpp"
#include "ddl/error.hpp"

namespace ddl {

/// A view of elements of any type: made of a span, a vector, or a pointer and a count, whose memory must stay
/// where it is while it is used.
class Elements {
 public:
  Elements() = default;
  template <Element T, std::size_t Extent>
  Elements(std::span<T, Extent> values) : Elements(values.data(), values.size(), data_type_of<T>()) {}
  template <Element T>
  Elements(std::vector<T>& values) : Elements(std::span<T>(values)) {}
  template <Element T>
  Elements(T* data, std::size_t count) : Elements(data, count, data_type_of<T>()) {}
  Elements(void* data, std::size_t count, DataType type) : data_(data), count_(count), type_(type) {}

  [[nodiscard]] void* data() const noexcept { return data_; }
  /// Number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] DataType type() const noexcept { return type_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(data_), count_ * size_of(type_)};
  }
  [[nodiscard]] Elements first(std::size_t count) const noexcept { return {data_, count, type_}; }
  [[nodiscard]] Elements subspan(std::size_t first, std::size_t count) const noexcept {
    return {static_cast<std::byte*>(data_) + first * size_of(type_), count, type_};
  }
  /// Throws `invalid_argument` for another type than theirs.
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

/// The same of elements that are only read.
class ConstElements {
 public:
  template <Element T, std::size_t Extent>
  ConstElements(std::span<const T, Extent> values)
      : ConstElements(values.data(), values.size(), data_type_of<T>()) {}
  template <Element T, std::size_t Extent>
  ConstElements(std::span<T, Extent> values)
      : ConstElements(values.data(), values.size(), data_type_of<T>()) {}
  template <Element T>
  ConstElements(const std::vector<T>& values) : ConstElements(std::span<const T>(values)) {}
  ConstElements(const Elements& values) : ConstElements(values.data(), values.size(), values.type()) {}
  template <Element T>
  ConstElements(const T* data, std::size_t count) : ConstElements(data, count, data_type_of<T>()) {}
  ConstElements(const void* data, std::size_t count, DataType type)
      : data_(data), count_(count), type_(type) {}

  [[nodiscard]] const void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] DataType type() const noexcept { return type_; }

 private:
  const void* data_;
  std::size_t count_;
  DataType type_;
};

}  // namespace ddl
