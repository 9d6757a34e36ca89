#pragma once

#include <string>
#include <utility>
#include <vector>

namespace nmt {

/// A JSON object of options as (name, command line's text) pairs, in order. Names are known and values have
/// the flag's JSON type; flags of tensorflow/nmt are accepted as on the command line, and left out.
/// `origin` says in messages where the text is from. Throws `corrupt_data` if it is not a JSON object.
std::vector<std::pair<std::string, std::string>> options_in_json(const std::string& text,
                                                                 const std::string& origin);

}  // namespace nmt
