#include "collectives/communicator/request.hpp"

#include <fmt/format.h>

#include "topology/refuse.hpp"

namespace ddl::collectives {

using topology::Collective;

namespace {

template <typename... Values>
[[noreturn]] void refuse(const CallName& name, fmt::format_string<Values...> format, Values&&... values) {
  fail_with(ErrorCode::invalid_argument, "{}: {}", name.view(),
            fmt::format(format, std::forward<Values>(values)...));
}

std::size_t element_size(const CallName& name, DataType type) {
  const std::size_t bytes = size_of(type);
  if (bytes == 0) refuse(name, "there is no type number {}", static_cast<int>(type));
  return bytes;
}

void require_operation(const CallName& name, ReduceOp op) {
  if (op > ReduceOp::prod) refuse(name, "there is no operation number {}", static_cast<int>(op));
}

void require_root(const CallName& name, Place place, int root) {
  if (root >= 0 && root < place.size) return;
  refuse(name, "root {} does not exist: this communicator has ranks 0 to {}", root, place.size - 1);
}

std::size_t bytes_of(const CallName& name, std::size_t pieces, std::size_t count, std::size_t element) {
  // No process can have half of all addresses, and the rest leaves room for sums.
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 2;
  // Without a division, which would take as long as a small call's other checks.
  std::size_t bytes = 0;
  if (!__builtin_mul_overflow(count, element, &bytes) && !__builtin_mul_overflow(bytes, pieces, &bytes) &&
      bytes <= most) {
    return bytes;
  }
  if (pieces == 1) refuse(name, "{} elements of {} bytes are more than memory can hold", count, element);
  refuse(name, "{} pieces of {} elements of {} bytes are more than memory can hold", pieces, count, element);
}

void require_data(const CallName& name, const char* which, const void* data, std::size_t count) {
  if (data == nullptr && count != 0) refuse(name, "{} is null, but {} elements were given", which, count);
}

std::uintptr_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

struct Extent {
  const void* data;
  std::size_t bytes;
};

void require_apart(const CallName& name, Extent input, Extent output, const char* in_place) {
  const std::uintptr_t in = address_of(input.data);
  const std::uintptr_t out = address_of(output.data);
  if (in + input.bytes <= out || out + output.bytes <= in) return;
  refuse(name,
         "the input, {} bytes at {}, and the output, {} bytes at {}, overlap: expected {}, or memory that "
         "has nothing in common",
         input.bytes, input.data, output.bytes, output.data, in_place);
}

/// `data` less `bytes`, which may be outside of an object: such addresses are never accessed.
template <typename Pointer>
Pointer moved_back(Pointer data, std::size_t bytes) {
  return reinterpret_cast<Pointer>(address_of(data) - bytes);
}

const std::byte* in(const void* input) { return static_cast<const std::byte*>(input); }
std::byte* out(void* output) { return static_cast<std::byte*>(output); }

/// For calls whose input and output both hold all elements.
void set_buffers(Request& request, const void* input, void* output, std::size_t bytes) {
  if (input != output) {
    require_apart(request.name, {input, bytes}, {output, bytes}, "the same memory (in place)");
  }
  request.buffers = {in(input), out(output), 0, request.count};
}

}  // namespace

Request all_reduce_request(const void* input, void* output, std::size_t count, DataType type, ReduceOp op) {
  static constexpr CallName name = "all_reduce";
  const std::size_t bytes = bytes_of(name, 1, count, element_size(name, type));
  require_operation(name, op);
  require_data(name, "the input", input, count);
  require_data(name, "the output", output, count);
  Request request{name, Collective::all_reduce, 0, count, count, type, op};
  set_buffers(request, input, output, bytes);
  return request;
}

Request reduce_scatter_request(Place place, const void* input, void* output, std::size_t count, DataType type,
                               ReduceOp op) {
  static constexpr CallName name = "reduce_scatter";
  const auto pieces = as_index(place.size);
  const auto own = as_index(place.rank);
  const std::size_t element = element_size(name, type);
  const std::size_t all_bytes = bytes_of(name, pieces, count, element);
  const std::size_t bytes = count * element;
  require_operation(name, op);
  require_data(name, "the input", input, count);
  require_data(name, "the output", output, count);
  std::byte* const base = moved_back(out(output), own * bytes);
  Request request{name, Collective::reduce_scatter, 0, count, pieces * count, type, op};
  if (base == input) {
    request.buffers = {in(input), base, 0, pieces * count};
  } else {
    require_apart(name, {input, all_bytes}, {output, bytes}, "this rank's piece of the input (in place)");
    request.buffers = {in(input), base, own * count, (own + 1) * count};
  }
  return request;
}

Request all_gather_request(Place place, const void* input, void* output, std::size_t count, DataType type) {
  static constexpr CallName name = "all_gather";
  const auto pieces = as_index(place.size);
  const std::size_t element = element_size(name, type);
  const std::size_t all_bytes = bytes_of(name, pieces, count, element);
  const std::size_t bytes = count * element;
  const std::size_t before = as_index(place.rank) * bytes;
  require_data(name, "the input", input, count);
  require_data(name, "the output", output, count);
  const std::byte* const base = moved_back(in(input), before);
  Request request{name, Collective::all_gather, 0, count, pieces * count, type, ReduceOp::sum};
  if (base != output) {
    require_apart(name, {input, bytes}, {output, all_bytes}, "this rank's piece of the output (in place)");
  }
  const auto own = as_index(place.rank);
  request.buffers = {base, out(output), 0, pieces * count, own * count, (own + 1) * count};
  return request;
}

Request broadcast_request(Place place, const void* input, void* output, std::size_t count, DataType type,
                          int root) {
  static constexpr CallName name = "broadcast";
  const std::size_t bytes = bytes_of(name, 1, count, element_size(name, type));
  require_root(name, place, root);
  require_data(name, "the output", output, count);
  Request request{name, Collective::broadcast, root, count, count, type, ReduceOp::sum};
  if (place.rank != root) {
    request.buffers = {out(output), out(output), 0, count};
    return request;
  }
  require_data(name, "the root's input", input, count);
  set_buffers(request, input, output, bytes);
  return request;
}

Request reduce_request(Place place, const void* input, void* output, std::size_t count, DataType type,
                       ReduceOp op, int root) {
  static constexpr CallName name = "reduce";
  const std::size_t bytes = bytes_of(name, 1, count, element_size(name, type));
  require_operation(name, op);
  require_root(name, place, root);
  require_data(name, "the input", input, count);
  Request request{name, Collective::reduce, root, count, count, type, op};
  if (place.rank != root) {
    request.buffers = {in(input), nullptr, 0, 0};
    return request;
  }
  require_data(name, "the root's output", output, count);
  set_buffers(request, input, output, bytes);
  return request;
}

Request with_wire(Request request, const Wire& wire, std::size_t residual) {
  if (wire.type != DataType::bf16 && wire.type != DataType::f16) {
    refuse(request.name, "found the wire type {}, expected bf16 or f16", to_string(wire.type));
  }
  if (wire.kept.size() != wire.left.size() || (!wire.kept.empty() && wire.kept.size() != residual)) {
    refuse(request.name,
           "found {} elements in Wire::kept and {} in Wire::left, expected {} in both "
           "(Communicator::residual_size), or none",
           wire.kept.size(), wire.left.size(), residual);
  }
  request.wire = wire.type;
  request.residual = {wire.kept.data(), wire.left.data()};
  return request;
}

Request barrier_request() noexcept {
  // Never written: the program writes to memory of the engine.
  static constexpr std::byte nothing{};
  return {"barrier", Collective::barrier, 0, 0, 1, DataType::u8, ReduceOp::sum, {&nothing, nullptr, 0, 0}};
}

}  // namespace ddl::collectives
