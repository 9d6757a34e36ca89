#pragma once

#include <cstddef>
#include <utility>

namespace ddl::collectives {

/// Owns mapped pages that read as zeros until they are written. Physical memory is allocated at first touch.
class Mapping {
 public:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  Mapping() = default;
  /// Private memory, aligned to a huge page. If the system refuses, `data` is null and errno holds the
  /// reason.
  static Mapping of_process(std::size_t bytes) noexcept;
  /// Maps an open file, which may be closed afterwards; otherwise like `of_process`.
  static Mapping of_file(int fd, std::size_t bytes) noexcept;

  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  Mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ddl::collectives
