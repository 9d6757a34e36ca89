#include "ddl/data_type.hpp"

#include <array>

#include "topology/json_text.hpp"

namespace ddl {

std::string_view to_string(DataType type) noexcept {
  constexpr std::array<std::string_view, 7> names = {"u8", "i32", "i64", "f32", "f64", "f16", "bf16"};
  return topology::name_in(names, type);
}

std::string_view to_string(ReduceOp op) noexcept {
  constexpr std::array<std::string_view, 5> names = {"sum", "avg", "min", "max", "prod"};
  return topology::name_in(names, op);
}

}  // namespace ddl
