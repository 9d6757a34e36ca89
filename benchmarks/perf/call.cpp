#include "perf/call.hpp"

#include <algorithm>

namespace perf {

using ddl::topology::Collective;

Shape shape_of(Collective collective, std::size_t bytes, ddl::DataType type, int ranks) {
  const std::size_t elements = bytes / size_of(type);
  const auto n = static_cast<std::size_t>(ranks);
  Shape shape{elements, elements, elements, elements};
  if (collective == Collective::reduce_scatter || collective == Collective::all_gather) {
    shape.count = elements / n;
    shape.whole = shape.count * n;
    shape.input = collective == Collective::reduce_scatter ? shape.whole : shape.count;
    shape.output = collective == Collective::all_gather ? shape.whole : shape.count;
  }
  return shape;
}

double bus_factor(Collective collective, int ranks) noexcept {
  const double n = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return (n - 1) / n;
    default:
      return 1;
  }
}

void run(ddl::Communicator& communicator, const Call& call) {
  switch (call.collective) {
    case Collective::all_reduce:
      return communicator.all_reduce(call.input, call.output, call.count, call.type, call.op);
    case Collective::reduce_scatter:
      return communicator.reduce_scatter(call.input, call.output, call.count, call.type, call.op);
    case Collective::all_gather:
      return communicator.all_gather(call.input, call.output, call.count, call.type);
    case Collective::broadcast:
      return communicator.broadcast(call.input, call.output, call.count, call.type, call.root);
    case Collective::reduce:
      return communicator.reduce(call.input, call.output, call.count, call.type, call.op, call.root);
    case Collective::barrier:
      return communicator.barrier();
  }
}

}  // namespace perf
