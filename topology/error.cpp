#include "ddl/error.hpp"

#include <array>
#include <cstddef>

namespace ddl {

const char* to_string(ErrorCode code) noexcept {
  constexpr std::array names = {"invalid_argument", "mismatch",    "timeout",
                                "peer_failed",      "transport",   "io",
                                "corrupt_data",     "unsupported", "internal"};
  const auto index = static_cast<std::size_t>(code);
  return index < names.size() ? names[index] : "unknown";
}

}  // namespace ddl
