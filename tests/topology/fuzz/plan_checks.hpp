#pragma once

#include <string_view>

namespace ddl::topology {

/// As those of `parser_checks.hpp`, for the readers of plans and of what people write on a command line. A
/// small plan that is accepted must also be one that can be lowered to a schedule that verifies.
bool check_plan_from_json(std::string_view bytes);
bool check_decomposition(std::string_view bytes);
bool check_mode(std::string_view bytes);

}  // namespace ddl::topology
