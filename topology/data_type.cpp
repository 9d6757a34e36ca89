// Names of the enumerators of the public headers that all layers share.
#include "ddl/data_type.hpp"

#include <array>

#include "ddl/error.hpp"
#include "topology/json_text.hpp"

namespace ddl {

const char* to_string(ErrorCode code) noexcept {
  constexpr std::array names = {"invalid_argument", "mismatch",    "timeout",
                                "peer_failed",      "transport",   "io",
                                "corrupt_data",     "unsupported", "internal"};
  const auto index = static_cast<std::size_t>(code);
  return index < names.size() ? names[index] : "unknown";
}

std::string_view to_string(DataType type) noexcept {
  constexpr std::array<std::string_view, 7> names = {"u8", "i32", "i64", "f32", "f64", "f16", "bf16"};
  return topology::name_in(names, type);
}

std::string_view to_string(ReduceOp op) noexcept {
  constexpr std::array<std::string_view, 5> names = {"sum", "avg", "min", "max", "prod"};
  return topology::name_in(names, op);
}

}  // namespace ddl
