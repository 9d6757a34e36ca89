#pragma once

#include <string>
#include <vector>

#include "nmt_example/options/json.hpp"

namespace nmt {

/// The options in a file of --config or --hparams_path, in order: a JSON object if the text starts with one,
/// else a YAML mapping, which a name that ends in .yaml or .yml always means. The names of such files in it
/// are left out. `flag` is the flag that named the file, for messages. Throws `io`, and as `options_in_json`
/// and `yaml_object`.
std::vector<Setting> options_in_file(const std::string& path, const std::string& flag);

}  // namespace nmt
