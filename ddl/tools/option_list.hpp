#pragma once

#include <string>

namespace ddl::tools {

/// Every option of a job: its value and default, where the value comes from, and how it is given. For people.
std::string option_list_text();
/// An array of objects.
std::string option_list_json();

}  // namespace ddl::tools
