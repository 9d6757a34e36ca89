#pragma once

#include <string_view>

namespace ddl::topology {

/// Like the checks of `parser_checks.hpp`, for the readers of plans and of command-line arguments. A small
/// plan that is accepted must also be lowered to a schedule that verifies.
bool check_plan_from_json(std::string_view bytes);
bool check_decomposition(std::string_view bytes);
bool check_mode(std::string_view bytes);

}  // namespace ddl::topology
