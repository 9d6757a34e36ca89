#include "ddl/error.hpp"
#include "nmt_example/report/chart.hpp"

namespace nmt {

std::string draw(const std::string&, const std::vector<Chart>&, ImageFormat) {
  throw ddl::Error(ddl::ErrorCode::unsupported,
                   "this build cannot draw, because it found no Cairo (Debian: libcairo2-dev)");
}

}  // namespace nmt
