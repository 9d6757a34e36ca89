#pragma once

#include "ddl/topology/as_index.hpp"
#include "topology/units.hpp"

namespace ddl::tools {

using topology::as_index;
using topology::count_text;
using topology::digits_text;
using topology::TextTable;

}  // namespace ddl::tools
