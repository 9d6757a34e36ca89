#pragma once

#include <map>
#include <string>

namespace nmt {

/// A YAML mapping as a JSON object, and the line, from 1, of each of its keys.
struct YamlObject {
  std::string json;
  std::map<std::string, int> lines;
};

/// Scalars without quotes are numbers, booleans and null as in JSON (also True and False), else text.
/// `origin` names the source in messages. Throws `corrupt_data` for what is no YAML mapping of names, and
/// `unsupported` in a build without yaml-cpp.
YamlObject yaml_object(const std::string& text, const std::string& origin);

}  // namespace nmt
