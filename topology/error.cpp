#include "ddl/error.hpp"

namespace ddl {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::peer_failed:
      return "peer_failed";
    case ErrorCode::transport:
      return "transport";
    case ErrorCode::io:
      return "io";
    case ErrorCode::corrupt_data:
      return "corrupt_data";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

}  // namespace ddl
