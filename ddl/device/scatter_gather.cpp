#include "ddl/device/scatter_gather.hpp"

#include <algorithm>

namespace ddl::device {

ScatterGather scatter_gather(std::size_t count, std::size_t inner, std::size_t chunks) {
  ScatterGather result;
  const std::size_t parts = count / inner;  // one element for each member of a host
  result.rest = count % inner;
  const std::size_t pieces = std::min(chunks, parts);
  std::size_t at = 0;
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::size_t part = parts / pieces + (i < parts % pieces ? 1 : 0);
    result.chunks.push_back({at, part});
    at += part * inner;
  }
  return result;
}

}  // namespace ddl::device
