#include "device/device_cases.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/kernels/reduce.hpp"
#include "device/device_fixture.hpp"
#include "device/test_numbers.hpp"

namespace ddl::test {
namespace {

std::size_t pieces(const Case& c, int ranks, Collective with_many) {
  return c.collective == with_many ? static_cast<std::size_t>(ranks) : 1;
}

std::vector<std::byte> input_of(const Case& c, int rank, int ranks) {
  const std::size_t count = c.count * pieces(c, ranks, Collective::reduce_scatter);
  const auto seed = static_cast<std::uint32_t>(rank) + 1;
  // Products and sums of up to 8 ranks fit 8 bits.
  return c.in_any_order ? small_numbers(c.type, count, seed, c.op == ReduceOp::prod ? 2 : 16)
                        : random_bytes(c.type, count, seed);
}

/// A rank's expected output; empty if it is not written.
std::vector<std::byte> expected(const Case& c, int rank, int ranks) {
  const std::size_t bytes = c.count * size_of(c.type);
  std::vector<std::vector<std::byte>> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(input_of(c, r, ranks));
  if (c.collective == Collective::broadcast) return inputs[static_cast<std::size_t>(c.root)];
  if (c.collective == Collective::reduce && rank != c.root) return {};
  std::vector<std::byte> result;
  if (c.collective == Collective::all_gather) {
    for (const auto& input : inputs) result.insert(result.end(), input.begin(), input.end());
    return result;
  }
  result.resize(bytes);
  std::vector<const std::byte*> sources;
  const std::size_t at =
      c.collective == Collective::reduce_scatter ? static_cast<std::size_t>(rank) * bytes : 0;
  for (const auto& input : inputs) sources.push_back(input.data() + at);
  std::byte* const target = result.data();
  collectives::reduce(c.type, c.op, std::span(&target, 1), sources, c.count,
                      c.op == ReduceOp::avg ? ranks : 1);
  return result;
}

/// Queues the call; returns the address of its output.
std::byte* call(DeviceCommunicator& device, const Case& c, const OnDevice& first, const OnDevice& second,
                cudaStream_t stream) {
  const std::size_t piece = static_cast<std::size_t>(device.rank()) * c.count * size_of(c.type);
  const std::byte* input = first.data();
  std::byte* output = c.in_place ? first.data() : second.data();
  if (c.in_place && c.collective == Collective::all_gather) input += piece;
  if (c.in_place && c.collective == Collective::reduce_scatter) output += piece;
  switch (c.collective) {
    case Collective::all_reduce:
      device.all_reduce(input, output, c.count, c.type, c.op, stream);
      break;
    case Collective::reduce_scatter:
      device.reduce_scatter(input, output, c.count, c.type, c.op, stream);
      break;
    case Collective::all_gather:
      device.all_gather(input, output, c.count, c.type, stream);
      break;
    case Collective::broadcast:
      device.broadcast(input, output, c.count, c.type, c.root, stream);
      break;
    case Collective::reduce:
      device.reduce(input, output, c.count, c.type, c.op, c.root, stream);
      break;
    case Collective::barrier:
      device.barrier(stream);
      break;
  }
  return output;
}

}  // namespace

void run_cases(int ranks, const std::vector<Case>& cases, const DeviceOptions& options,
               const InProcessOptions& in_process) {
  const auto body = [&](Context& context) {
    // Allocates all memory first, because cudaMalloc would wait for kernels that wait for other ranks.
    std::vector<std::unique_ptr<OnDevice>> first, second;
    int devices = 0;
    EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(context.rank() % devices), cudaSuccess);
    const Stream stream;
    DeviceOptions own = options;
    if (own.device < 0) own.device = context.rank() % devices;
    DeviceCommunicator device(context, own);
    for (const Case& c : cases) {
      auto input = input_of(c, context.rank(), ranks);
      const std::size_t whole =
          std::max(input.size(), c.count * size_of(c.type) * pieces(c, ranks, Collective::all_gather));
      std::vector<std::byte> bytes(whole);
      const bool is_piece = c.in_place && c.collective == Collective::all_gather;
      std::copy(input.begin(), input.end(),
                bytes.begin() + (is_piece ? context.rank() * static_cast<std::ptrdiff_t>(input.size()) : 0));
      first.push_back(std::make_unique<OnDevice>(bytes));
      second.push_back(std::make_unique<OnDevice>(std::vector<std::byte>(whole, std::byte{0x5a})));
    }
    context.communicator().barrier();
    std::vector<const std::byte*> outputs;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      outputs.push_back(call(device, cases[i], *first[i], *second[i], stream));
    }
    device.wait(stream);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      SCOPED_TRACE(testing::Message()
                   << topology::to_string(c.collective) << ' ' << to_string(c.type) << ' ' << to_string(c.op)
                   << " count " << c.count << (c.in_place ? " in place" : ""));
      auto wanted = expected(c, context.rank(), ranks);
      std::vector<std::byte> found(wanted.size());
      EXPECT_EQ(cudaMemcpy(found.data(), outputs[i], found.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      EXPECT_EQ(found, wanted) << "rank " << context.rank();
      if (wanted.empty() && !c.in_place) {
        EXPECT_EQ(second[i]->bytes(), second[i]->original) << "left alone";
      }
    }
    context.communicator().barrier();
  };
  run_in_process(ranks, body, in_process);
}

}  // namespace ddl::test
