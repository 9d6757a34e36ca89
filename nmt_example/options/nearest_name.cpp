#include "nmt_example/options/nearest_name.hpp"

#include <vector>

#include "ddl/nearest_name.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/tensorflow_nmt_flags.hpp"

namespace nmt {

std::string_view nearest_flag_name(std::string_view name) {
  std::vector<std::string_view> names = {"help", "version"};
  for (const Flag& flag : all_flags()) names.push_back(flag.name);
  for (const TensorflowNmtFlag& flag : tensorflow_nmt_flags()) names.push_back(flag.name);
  return ddl::nearest_name(name, names);
}

}  // namespace nmt
