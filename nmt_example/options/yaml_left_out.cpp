#include <fmt/core.h>

#include "ddl/error.hpp"
#include "nmt_example/options/yaml.hpp"

namespace nmt {

YamlObject yaml_object(const std::string&, const std::string& origin) {
  throw ddl::Error(ddl::ErrorCode::unsupported,
                   fmt::format("{}: YAML cannot be read by this build, which found no yaml-cpp (Debian: "
                               "libyaml-cpp-dev); write the options as a JSON object",
                               origin));
}

}  // namespace nmt
