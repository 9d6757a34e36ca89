#pragma once

#include <string_view>

namespace ddl::topology {

/// Like the checks of `parser_checks.hpp`, for measurements of the preset "ethernet:2x2".
bool check_measurements_from_json(std::string_view bytes);

}  // namespace ddl::topology
