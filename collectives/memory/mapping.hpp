#pragma once

#include <cstddef>
#include <utility>

namespace ddl::collectives {

/// Owns pages of the address space that hold zeros until they are written. They take up memory when they are
/// first touched.
class Mapping {
 public:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  Mapping() = default;
  /// `bytes` bytes, aligned to a huge page; `data` is null, and errno says why, if the system refuses.
  static Mapping of_process(std::size_t bytes) noexcept;
  /// The same of an open file, which may be closed afterwards.
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
