#pragma once

#include <functional>
#include <string>
#include <vector>

namespace nmt {

/// An option as on a command line, and where it was found: "FILE:LINE", or empty for the command line.
struct Setting {
  std::string name;
  std::string value;
  std::string where = {};
};

/// The options in a JSON object, in order. Names must be known, and values must have the flag's JSON type; a
/// list of strings or numbers becomes one text with commas, and null is left out. Flags of tensorflow/nmt
/// that are no options here are in the result, unchecked. `origin` names the source of the text in messages,
/// and `line_of` tells the line of a name, from 1, if it is given. Throws `corrupt_data` if it is not a JSON
/// object.
std::vector<Setting> options_in_json(const std::string& text, const std::string& origin,
                                     const std::function<int(const std::string& name)>& line_of = {});

/// The line, from 1, of a key in a JSON object; of the first place that looks like it.
int line_of_key(const std::string& json, const std::string& key);

}  // namespace nmt
