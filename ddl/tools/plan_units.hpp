#pragma once

#include "topology/units.hpp"

namespace ddl::tools {

using topology::count_text;
using topology::digits_text;
using topology::TextTable;

}  // namespace ddl::tools
