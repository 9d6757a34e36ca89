#pragma once

#include <cstdint>
#include <string>

namespace ddl::topology {

/// "717.7 MB", "1024 B": powers of 1000.
std::string format_bytes(double bytes);
/// "88.2 ms", "3.41 us": three digits.
std::string format_us(double microseconds);

}  // namespace ddl::topology
