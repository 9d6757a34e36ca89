#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddl::topology {

struct XmlElement {
  std::string name;
  std::size_t line = 0;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;

  [[nodiscard]] const std::string* attribute(std::string_view wanted) const;
};

/// Returns the root element; text between elements is ignored. Throws `corrupt_data` naming `source` and the
/// line: malformed or truncated XML, more than 65,536 elements, elements more than 64 deep.
XmlElement parse_xml(std::string_view text, std::string_view source);

}  // namespace ddl::topology
