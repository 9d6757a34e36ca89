#include "collectives/transports/network/ucx_failure.hpp"

#include <fmt/format.h>

namespace ddl::collectives {

std::string UcxFailure::text() const {
  const std::string message = fmt::format("message {} of call {} of communicator {}, {} bytes", tag.message,
                                          tag.call, tag.communicator, bytes);
  const char* direction = receives ? "from" : "to";
  switch (kind) {
    case Kind::none:
      break;
    case Kind::connection:
      if (status == UCS_ERR_UNREACHABLE) {
        return fmt::format("rank {} cannot be reached: no transport and network interface leads there", peer);
      }
      return fmt::format(
          "the connection to rank {} broke ({}): its process has died, or its host or the network "
          "has failed",
          peer, ucs_status_string(status));
    case Kind::left:
      return fmt::format(
          "rank {} has left the job, but there is a {} {} it: do all ranks make the same calls?", peer,
          message, direction);
    case Kind::length:
      return fmt::format("rank {} sent {} bytes, {}: do all ranks make the same calls with the same counts?",
                         peer, status == UCS_OK ? fmt::format("{}", arrived) : "too many",
                         "expected " + message);
    case Kind::transfer:
      return fmt::format("{} {} rank {} failed: {}", message, direction, peer, ucs_status_string(status));
  }
  return {};
}

}  // namespace ddl::collectives
