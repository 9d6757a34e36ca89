#include "matrix/run_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "ddl/shared_buffer.hpp"
#include "matrix/values.hpp"

namespace matrix {

using ddl::topology::Collective;

namespace {

constexpr std::byte garbage{0xa5};
constexpr std::size_t guard = 64;  // bytes before and after the data, which nobody may write

/// Memory for one buffer with guards around it.
class Buffer {
 public:
  Buffer(ddl::Context& context, std::size_t bytes, bool is_registered, std::size_t shift)
      : bytes_(bytes), begin_(guard + shift), total_(begin_ + bytes + guard) {
    if (is_registered) {
      memory_ = ddl::allocate_bytes(context, total_).release();
    } else {
      memory_ = std::shared_ptr<std::byte[]>(new std::byte[total_]);
    }
    std::fill_n(all(), total_, garbage);
  }

  [[nodiscard]] std::span<std::byte> data() const { return {all() + begin_, bytes_}; }
  [[nodiscard]] bool is_guarded() const {
    const auto is_garbage = [](std::byte byte) { return byte == garbage; };
    return std::all_of(all(), all() + begin_, is_garbage) &&
           std::all_of(all() + begin_ + bytes_, all() + total_, is_garbage);
  }

 private:
  [[nodiscard]] std::byte* all() const { return static_cast<std::byte*>(memory_.get()); }

  std::size_t bytes_;
  std::size_t begin_;
  std::size_t total_;
  std::shared_ptr<void> memory_;
};

struct Call {
  const Case& one;
  const std::byte* input;
  std::byte* output;
  std::size_t count;
  int root;
};

void run(ddl::Communicator& c, const Call& call) {
  const Case& one = call.one;
  switch (one.collective) {
    case Collective::all_reduce:
      if (one.is_async)
        return c.all_reduce_async(call.input, call.output, call.count, one.type, one.op).wait();
      return c.all_reduce(call.input, call.output, call.count, one.type, one.op);
    case Collective::reduce_scatter:
      if (one.is_async) {
        return c.reduce_scatter_async(call.input, call.output, call.count, one.type, one.op).wait();
      }
      return c.reduce_scatter(call.input, call.output, call.count, one.type, one.op);
    case Collective::all_gather:
      if (one.is_async) return c.all_gather_async(call.input, call.output, call.count, one.type).wait();
      return c.all_gather(call.input, call.output, call.count, one.type);
    case Collective::broadcast:
      if (one.is_async) {
        return c.broadcast_async(call.input, call.output, call.count, one.type, call.root).wait();
      }
      return c.broadcast(call.input, call.output, call.count, one.type, call.root);
    case Collective::reduce:
      if (one.is_async) {
        return c.reduce_async(call.input, call.output, call.count, one.type, one.op, call.root).wait();
      }
      return c.reduce(call.input, call.output, call.count, one.type, one.op, call.root);
    case Collective::barrier:
      return c.barrier();
  }
}

}  // namespace

std::string run_case(const Case& one, ddl::Context& context, ddl::Communicator& communicator) {
  const std::size_t element = size_of(one.type);
  const std::size_t count = elements_of(one);
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const int rank = communicator.rank();
  const auto r = static_cast<std::size_t>(rank);
  // Roots take turns with counts and types.
  const int root = static_cast<int>((count + static_cast<std::size_t>(one.type)) % ranks);
  const bool is_rooted = one.collective == Collective::broadcast || one.collective == Collective::reduce;
  const bool has_input = one.collective != Collective::broadcast || rank == root;
  const bool has_output = one.collective != Collective::reduce || rank == root;

  const std::size_t inputs = one.collective == Collective::reduce_scatter ? count * ranks : count;
  const std::size_t outputs = one.collective == Collective::all_gather ? count * ranks : count;
  const std::size_t shift = one.memory == Memory::shifted ? element : 0;
  const bool in_registered = one.memory == Memory::registered || one.memory == Memory::shifted;
  const bool out_registered = one.memory != Memory::plain;
  const std::size_t first_input = one.collective == Collective::all_gather ? r * count : 0;

  const Inputs values(one);
  const Buffer whole(context, std::max(inputs, outputs) * element, out_registered, shift);
  const Buffer separate(context, one.in_place ? 0 : inputs * element, in_registered, shift);
  Call call{one, separate.data().data(), whole.data().data(), count, root};
  if (one.in_place) {
    std::byte* const begin = whole.data().data();
    call.input = one.collective == Collective::all_gather ? begin + r * count * element : begin;
    if (one.collective == Collective::reduce_scatter) call.output = begin + r * count * element;
  }
  const std::span input(const_cast<std::byte*>(call.input), inputs * element);
  const std::span output(call.output, outputs * element);
  if (has_input) values.write(rank, first_input, input);
  // Other ranks need none: null, unless that would make it look in place.
  if (is_rooted && !one.in_place && !has_input) call.input = nullptr;
  if (is_rooted && !one.in_place && !has_output) call.output = nullptr;

  run(communicator, call);

  std::string wrong;
  const auto report = [&](std::size_t number, const char* what) {
    if (number != 0) wrong += fmt::format("{}{} {}", wrong.empty() ? "" : ", ", number, what);
  };
  switch (one.collective) {
    case Collective::all_reduce:
      report(values.differ_from_reduction(0, output), "wrong elements");
      break;
    case Collective::reduce_scatter:
      report(values.differ_from_reduction(r * count, output), "wrong elements");
      break;
    case Collective::reduce:
      if (has_output) report(values.differ_from_reduction(0, output), "wrong elements");
      if (!has_output && !one.in_place) {
        report(static_cast<std::size_t>(
                   std::ranges::count_if(output, [](std::byte byte) { return byte != garbage; })),
               "bytes of another rank's output written");
      }
      break;
    case Collective::broadcast:
      report(values.differ_from_input(root, 0, output), "wrong elements");
      break;
    case Collective::all_gather:
      for (std::size_t from = 0; from < ranks; ++from) {
        report(values.differ_from_input(static_cast<int>(from), from * count,
                                        output.subspan(from * count * element, count * element)),
               "wrong elements of a rank");
      }
      break;
    case Collective::barrier:
      break;
  }
  if (!one.in_place && has_input) {
    report(values.differ_from_input(rank, first_input, input), "changed elements of the input");
  }
  if (!whole.is_guarded() || !separate.is_guarded()) wrong += " memory outside of the buffers is written";
  return wrong;
}

}  // namespace matrix
