#pragma once

#include <string>
#include <utility>
#include <vector>

namespace nmt {

/// The options in a JSON object as pairs (name, command-line text), in order. Names must be known, and values
/// must have the flag's JSON type; a list of strings or numbers becomes one text with commas, and null is
/// left out. Flags of tensorflow/nmt that are no options here are in the result, unchecked. `origin` names
/// the source of the text in messages. Throws `corrupt_data` if it is not a JSON object.
std::vector<std::pair<std::string, std::string>> options_in_json(const std::string& text,
                                                                 const std::string& origin);

}  // namespace nmt
