#include "topology/units.hpp"

#include <fmt/format.h>

#include <cmath>

namespace ddl::topology {
namespace {

/// With `digits` significant digits, but no fewer than stand before the point.
std::string significant(double value, int digits) {
  const int before = value >= 1 ? static_cast<int>(std::floor(std::log10(value))) + 1 : 1;
  return fmt::format("{:.{}f}", value, before >= digits ? 0 : digits - before);
}

}  // namespace

std::string format_bytes(double bytes) {
  if (bytes < 9999.5) return fmt::format("{:.0f} B", bytes);
  for (const char* unit : {"kB", "MB", "GB"}) {
    bytes /= 1e3;
    if (bytes < 999.95) return fmt::format("{} {}", significant(bytes, 4), unit);
  }
  return fmt::format("{} TB", significant(bytes / 1e3, 4));
}

std::string format_us(double microseconds) {
  if (microseconds < 999.5) return significant(microseconds, 3) + " us";
  if (microseconds < 999.5e3) return significant(microseconds / 1e3, 3) + " ms";
  return significant(microseconds / 1e6, 3) + " s";
}

}  // namespace ddl::topology
