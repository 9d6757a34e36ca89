#pragma once

#include <map>
#include <string>
#include <vector>

namespace nmt {

struct Point {
  double step;
  double value;
};

/// A run's JSON-lines log: each value by its name, in the order of steps.
using RunHistory = std::map<std::string, std::vector<Point>>;

/// Leaves out what is null, and a last line that is not complete yet. Throws `io` if the file cannot be read,
/// and `corrupt_data`, with the line, if it is no such log or has no step.
RunHistory read_history(const std::string& path);

}  // namespace nmt
