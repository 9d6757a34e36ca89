#include "topology/discovery/sysfs.hpp"

#include <charconv>
#include <fstream>

namespace ddl::topology {

std::optional<std::string> read_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  if (!std::getline(stream, line)) return std::nullopt;
  line.erase(line.find_last_not_of(" \t\r\n") + 1);
  return line;
}

std::optional<long> read_integer(const std::filesystem::path& file) {
  const std::optional<std::string> line = read_line(file);
  if (!line) return std::nullopt;
  long value = 0;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
  if (error != std::errc() || end != line->data() + line->size()) return std::nullopt;
  return value;
}

}  // namespace ddl::topology
