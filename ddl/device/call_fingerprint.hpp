#pragma once

#include <cstdint>

#include "ddl/device/device_path.hpp"
#include "ddl/hash.hpp"

namespace ddl::device {

/// Of numbers, one after the other.
class Mixed {
 public:
  void add(std::uint64_t number) noexcept { hash_ = mix(hash_ ^ number); }
  [[nodiscard]] std::uint64_t value() const noexcept { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

/// As good as never the same for different calls of users.
inline std::uint64_t fingerprint_of(const DeviceCall& part) noexcept {
  const CalledAs call = part.called();
  Mixed mixed;
  mixed.add(static_cast<std::uint64_t>(call.collective));
  mixed.add(call.count);
  mixed.add(static_cast<std::uint64_t>(call.type));
  mixed.add(reduces(call.collective) ? static_cast<std::uint64_t>(call.op) : 0);
  mixed.add(static_cast<std::uint64_t>(call.root));
  mixed.add(part.count);  // ranks must cut a call alike,
  mixed.add(part.plan);   // and by the same plan
  return mixed.value();
}

}  // namespace ddl::device
