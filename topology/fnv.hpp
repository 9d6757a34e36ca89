#pragma once

#include <cstdint>
#include <string_view>

namespace ddl::topology {

/// FNV-1a, 64 bits: the same on every machine.
class Fnv {
 public:
  void add(std::uint8_t byte) noexcept { value_ = (value_ ^ byte) * prime; }
  /// Little-endian, all eight bytes.
  void add_number(std::uint64_t number) noexcept {
    for (int i = 0; i < 8; ++i) add(static_cast<std::uint8_t>(number >> (8 * i)));
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  static constexpr std::uint64_t prime = 0x100000001b3;
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace ddl::topology
