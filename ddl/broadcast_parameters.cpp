#include "ddl/broadcast_parameters.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "ddl/agreement.hpp"
#include "ddl/error.hpp"
#include "ddl/same_parameters.hpp"

namespace ddl {
namespace {

/// 1 for each parameter that starts where the one before it ends, on every rank.
std::vector<std::uint8_t> joined_with_previous(Context& context, const std::vector<Parameter>& parameters) {
  std::vector<std::uint8_t> joined(parameters.size());
  for (std::size_t i = 1; i < parameters.size(); ++i) {
    const std::span<float> previous = parameters[i - 1].values;
    joined[i] = previous.data() + previous.size() == parameters[i].values.data();
  }
  context.communicator().all_reduce(std::span(joined), ReduceOp::min);
  return joined;
}

}  // namespace

void broadcast_parameters(Context& context, const std::vector<Parameter>& parameters, int root) {
  require_same_entries(context, "broadcast_parameters", "argument", {fmt::format("root {}", root)});
  if (root < 0 || root >= context.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("broadcast_parameters: root {} is none of the {} ranks", root, context.size()))
        .as_agreed();
  }
  require_same_shapes(context, "broadcast_parameters", parameters);
  if (parameters.empty()) return;

  const std::vector<std::uint8_t> joined = joined_with_previous(context, parameters);
  for (std::size_t begin = 0; begin < parameters.size();) {
    std::size_t end = begin + 1;
    std::size_t count = parameters[begin].values.size();
    for (; end < parameters.size() && joined[end] != 0; ++end) count += parameters[end].values.size();
    context.communicator().broadcast(std::span(parameters[begin].values.data(), count), root);
    begin = end;
  }
  require_same_bits(
      context, "broadcast_parameters", parameters,
      "after the broadcast all must have the root's bits: parameters of a rank overlap in memory, "
      "or something writes to them meanwhile; if neither, please report it");
}

}  // namespace ddl
