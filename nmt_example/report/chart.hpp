#pragma once

#include <string>
#include <vector>

#include "nmt_example/report/run_history.hpp"

namespace nmt {

/// A line of a chart. Lines differ in their dashes, so that they can be told apart without colours.
struct ChartLine {
  std::string name;
  std::vector<Point> points;
  bool marks = false;  ///< At each point. Without, many points become means, with their range in grey.
};

struct Chart {
  std::string title;
  std::string unit;  ///< Of the values.
  std::vector<ChartLine> lines;
  bool logarithmic = false;  ///< Values that are not above 0 are left out.
};

enum class ImageFormat { svg, png };

/// The charts, two in a row, below a heading; their other axis is the number of steps. Returns the contents
/// of a file. Throws `unsupported` in a build without Cairo, and `internal` if Cairo fails.
std::string draw(const std::string& heading, const std::vector<Chart>& charts, ImageFormat format);

}  // namespace nmt
