// A rank that is a process, on a device that it may share: see device_processes_test.sh.
//   device_program results       compares every collective with the host's communicator, in memory that the
//   peers have
//                                mapped and in other memory; in reproducible contexts also floats, bit by bit
//   device_program die RANK      that rank kills itself while the others' kernels wait for it
//   device_program stop RANK     that rank stops itself
//   device_program differ        rank 0 calls a sum, the others a maximum
// A last word nccl, ucx, host or automatic selects NCCL, UCX, the host's memory, or the library's choice.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/device/cuda_check.hpp"
#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "device/hard_floats.hpp"

namespace {

constexpr std::size_t staging_bytes = std::size_t{64} << 10;  // calls need several parts
constexpr std::size_t most = 100'000;

using Values = std::vector<std::int32_t>;

class Rank {
 public:
  Rank(ddl::Context& context, ddl::DevicePathChoice path)
      : context_(context),
        all_(context.communicator()),
        // The smallest value of all ranks counts.
        device_(context, {.staging_bytes = staging_bytes << (context.rank() % 3), .path = path}) {
    const std::size_t bytes = most * static_cast<std::size_t>(context.size()) * sizeof(std::int32_t);
    for (std::byte*& memory : mapped_) memory = device_.allocate(bytes).data;
    for (std::byte*& memory : plain_) {
      void* allocated = nullptr;
      ddl::check_cuda(cudaMalloc(&allocated, bytes), "cudaMalloc");
      memory = static_cast<std::byte*>(allocated);
    }
    ddl::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }

  /// Returns the number of wrong elements.
  std::size_t check(std::size_t count, bool maps_input, bool maps_output) {
    const auto ranks = static_cast<std::size_t>(context_.size());
    const int last = context_.size() - 1;
    std::byte* const in = (maps_input ? mapped_ : plain_)[0];
    std::byte* const out = (maps_output ? mapped_ : plain_)[1];
    Values input(count * ranks);
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<std::int32_t>(i * 7 + static_cast<std::size_t>(context_.rank()) * 1'000'003);
    }
    constexpr auto i32 = ddl::DataType::i32;
    constexpr auto sum = ddl::ReduceOp::sum;
    std::size_t wrong = 0;
    const auto compare = [&](std::size_t elements, const auto& on_device, const auto& on_host) {
      Values expected(elements, -1), found(elements);
      upload(in, input);
      upload(out, expected);
      on_device();
      device_.wait(stream_);
      ddl::check_cuda(cudaMemcpy(found.data(), out, elements * sizeof(std::int32_t), cudaMemcpyDeviceToHost),
                      "cudaMemcpy");
      on_host(expected.data());
      for (std::size_t i = 0; i < elements; ++i) wrong += found[i] != expected[i] ? 1 : 0;
    };
    compare(
        count, [&] { device_.all_reduce(in, out, count, i32, sum, stream_); },
        [&](std::int32_t* to) { all_.all_reduce(input.data(), to, count, i32, sum); });
    compare(
        count, [&] { device_.reduce_scatter(in, out, count, i32, sum, stream_); },
        [&](std::int32_t* to) { all_.reduce_scatter(input.data(), to, count, i32, sum); });
    compare(
        count * ranks, [&] { device_.all_gather(in, out, count, i32, stream_); },
        [&](std::int32_t* to) { all_.all_gather(input.data(), to, count, i32); });
    compare(
        count, [&] { device_.broadcast(in, out, count, i32, last, stream_); },
        [&](std::int32_t* to) { all_.broadcast(input.data(), to, count, i32, last); });
    compare(
        count, [&] { device_.reduce(in, out, count, i32, sum, last, stream_); },
        [&](std::int32_t* to) { all_.reduce(input.data(), to, count, i32, sum, last); });
    return wrong;
  }

  /// Compares the bits of floats with the host's, for reproducible contexts; returns the number of different
  /// elements. Queues all calls before it waits, if there is room for the results; else does each call in
  /// place.
  std::size_t check_floats(ddl::DataType type, std::size_t count, bool is_mapped) {
    constexpr ddl::ReduceOp ops[] = {ddl::ReduceOp::sum, ddl::ReduceOp::avg, ddl::ReduceOp::min,
                                     ddl::ReduceOp::prod};
    const std::size_t bytes = count * ddl::size_of(type);
    const std::size_t room = most * static_cast<std::size_t>(context_.size()) * sizeof(std::int32_t);
    const bool is_queued = std::size(ops) * bytes <= room;
    std::byte* const in = (is_mapped ? mapped_ : plain_)[0];
    const std::vector<std::byte> input = ddl::hard_floats(type, count, context_.rank(), context_.size());
    std::vector<std::vector<std::byte>> found;
    const auto fetch = [&](const std::byte* from) {
      device_.wait(stream_);
      ddl::check_cuda(cudaMemcpy(found.emplace_back(bytes).data(), from, bytes, cudaMemcpyDeviceToHost),
                      "cudaMemcpy");
    };
    std::byte* out = is_queued ? (is_mapped ? mapped_ : plain_)[1] : in;
    for (const ddl::ReduceOp op : ops) {
      if (!is_queued || op == ops[0]) upload(in, input);
      device_.all_reduce(in, out, count, type, op, stream_);
      is_queued ? static_cast<void>(out += bytes) : fetch(in);
    }
    for (std::size_t i = std::size(ops); is_queued && i > 0; --i) fetch(out - i * bytes);
    std::size_t wrong = 0;
    for (std::size_t op = 0; op < std::size(ops); ++op) {
      std::vector<std::byte> expected(bytes);
      all_.all_reduce(input.data(), expected.data(), count, type, ops[op]);
      for (std::size_t i = 0; i < bytes; i += ddl::size_of(type)) {
        wrong += std::memcmp(&found[op][i], &expected[i], ddl::size_of(type)) != 0 ? 1 : 0;
      }
    }
    return wrong;
  }

  void all_reduce(ddl::ReduceOp op = ddl::ReduceOp::sum) {
    device_.all_reduce(mapped_[0], mapped_[1], 1000, ddl::DataType::f32, op, stream_);
    device_.wait(stream_);
  }
  [[nodiscard]] const ddl::DeviceCommunicator& device() const { return device_; }

 private:
  template <typename T>
  void upload(std::byte* to, const std::vector<T>& values) {
    ddl::check_cuda(
        cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream_),
        "cudaMemcpyAsync");
  }

  ddl::Context& context_;
  ddl::Communicator& all_;
  ddl::DeviceCommunicator device_;
  std::byte* mapped_[2];
  std::byte* plain_[2];
  cudaStream_t stream_ = nullptr;
};

int run(ddl::Context& context, const std::vector<std::string>& words) {
  ddl::DevicePathChoice path = ddl::DevicePathChoice::exchange;
  if (words.back() == "nccl") path = ddl::DevicePathChoice::nccl;
  if (words.back() == "ucx") path = ddl::DevicePathChoice::ucx;
  if (words.back() == "host") path = ddl::DevicePathChoice::host;
  if (words.back() == "automatic") path = ddl::DevicePathChoice::automatic;
  Rank rank(context, path);
  if (words[0] == "results") {
    std::size_t wrong = 0;
    for (const std::size_t count : {1, 1000, 20'000, 99'999}) {
      for (const bool maps_input : {false, true}) {
        for (const bool maps_output : {false, true}) {
          // Ranks may use different kinds of memory.
          const bool other = context.rank() % 2 == 1;
          wrong += rank.check(count, maps_input != other, maps_output);
        }
      }
    }
    if (context.options().reproducible) {
      for (const ddl::DataType type :
           {ddl::DataType::f32, ddl::DataType::f64, ddl::DataType::f16, ddl::DataType::bf16}) {
        for (const std::size_t count : {1000, 12'345, 99'999}) {
          wrong += rank.check_floats(type, count, true) + rank.check_floats(type, count, false);
        }
      }
    }
    fmt::print("rank {} of {} on device {} ({}), {} blocks: {} wrong\n", context.rank(), context.size(),
               rank.device().device(), rank.device().device_name(), rank.device().blocks(), wrong);
    return wrong == 0 ? 0 : 1;
  }
  rank.all_reduce();
  if (words[0] != "differ" && context.rank() == std::stoi(words.at(1))) {
    static_cast<void>(raise(words[0] == "die" ? SIGKILL : SIGSTOP));
  }
  rank.all_reduce(words[0] == "differ" && context.rank() != 0 ? ddl::ReduceOp::max : ddl::ReduceOp::sum);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.empty()) {
    fmt::print(stderr,
               "device_program results | die RANK | stop RANK | differ [nccl | ucx | host | automatic]\n");
    return 2;
  }
  return ddl::Context::run_from_environment([&](ddl::Context& context) { return run(context, words); });
}
