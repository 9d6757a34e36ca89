// All-reduces of ranks that are threads, on one or several devices; see --help.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/device/cuda_check.hpp"
#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/device/nccl/nccl_library.hpp"
#include "ddl/tools/command_line.hpp"
#include "perf/device_timer.hpp"
#include "perf/prepare_devices.hpp"
#include "perf/rank_threads.hpp"
#include "perf/stopwatch.hpp"

namespace {

constexpr std::string_view help =
    R"(device_perf: all-reduces on devices, compared with a copy from device to device

  device_perf [--name value ...]

Ranks are threads of this process, distributed over the devices; several share one if there are fewer. Sums of f32, out
of place.

  --ranks 2
  --smallest 1024      smallest size in bytes
  --largest 268435456  largest size in bytes
  --factor 4           factor between sizes
  --iterations 50      timed iterations, back to back on each rank's stream, after 5 untimed ones
  --nccl 0             1: uses NCCL at all sizes, and also measures NCCL called directly; each rank needs a device
  --reproducible 0     1: uses a reproducible context (DDL_REPRODUCIBLE) and compares with the bits of the host's sums
  --json FILE          appends JSON lines

Prints for each size
  time_us      time of a call: the median over 5 repetitions of the slowest rank's mean
  alone_us     time of a call followed by a wait, including the host: the median of 50
  copy_us      time of a cudaMemcpyAsync of the same bytes from device to device, on rank 0 only
  nccl_us      (--nccl 1) time of ncclAllReduce, called directly, measured like time_us
  of_copy      rate of the all-reduce, which reads and writes n times the bytes with n ranks on one device, divided by the
               rate of the copy
  wrong        number of wrong elements
)";

struct Options {
  int ranks = 2;
  std::size_t smallest = 1024;
  std::size_t largest = std::size_t{256} << 20;
  std::size_t factor = 4;
  std::size_t iterations = 50;
  bool nccl = false;
  bool reproducible = false;
  std::string json;
};

Options parse(std::span<const std::string> arguments) {
  using ddl::tools::Flag;
  constexpr std::array flags = {Flag{"--ranks", true},  Flag{"--smallest", true},    Flag{"--largest", true},
                                Flag{"--factor", true}, Flag{"--iterations", true},  Flag{"--nccl", true},
                                Flag{"--json", true},   Flag{"--reproducible", true}};
  const ddl::tools::CommandLine line = ddl::tools::parse_flags(arguments, flags);
  Options options;
  line.read("--ranks", options.ranks, 1, 1024);
  line.read("--smallest", options.smallest, sizeof(float), SIZE_MAX);
  line.read("--largest", options.largest, 1, SIZE_MAX);
  line.read("--factor", options.factor, 2, SIZE_MAX);
  line.read("--iterations", options.iterations, 1, SIZE_MAX);
  line.read("--nccl", options.nccl, {{"0", false}, {"1", true}});
  line.read("--reproducible", options.reproducible, {{"0", false}, {"1", true}});
  line.read("--json", options.json);
  return options;
}

/// A communicator of NCCL, used directly.
class DirectNccl {
 public:
  explicit DirectNccl(ddl::Context& context) : library_(ddl::device::NcclLibrary::get()) {
    ncclUniqueId id{};
    if (context.is_root()) check(library_.get_unique_id(&id), "ncclGetUniqueId");
    context.communicator().broadcast(ddl::Elements(&id, sizeof id, ddl::DataType::u8));
    ncclConfig_t configuration = NCCL_CONFIG_INITIALIZER;
    check(library_.init(&communicator_, context.size(), id, context.rank(), &configuration),
          "ncclCommInitRankConfig");
  }
  DirectNccl(const DirectNccl&) = delete;
  DirectNccl& operator=(const DirectNccl&) = delete;
  ~DirectNccl() { library_.destroy(communicator_); }

  void all_reduce(const float* input, float* output, std::size_t count, cudaStream_t stream) {
    check(library_.all_reduce(input, output, count, ncclFloat32, ncclSum, communicator_, stream),
          "ncclAllReduce");
  }

 private:
  void check(ncclResult_t result, const char* function) const {
    if (result == ncclSuccess) return;
    throw ddl::Error(ddl::ErrorCode::internal,
                     fmt::format("{}: {}", function, library_.text_of(result, communicator_)));
  }

  const ddl::device::NcclLibrary& library_;
  ncclComm_t communicator_ = nullptr;
};

class Benchmark {
 public:
  Benchmark(ddl::Context& context, const Options& options)
      : context_(context),
        options_(options),
        device_(context,
                {.path = options.nccl ? ddl::DevicePathChoice::nccl : ddl::DevicePathChoice::exchange}) {
    for (float*& buffer : buffers_) {
      void* memory = nullptr;
      ddl::check_cuda(cudaMalloc(&memory, options.largest), "cudaMalloc");
      buffer = static_cast<float*>(memory);
    }
    host_.resize(options.largest / sizeof(float));
    ddl::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    if (options.nccl) nccl_.emplace(context);
    if (context.is_root() && !options.json.empty()) json_.open(options.json, std::ios::app);
  }

  std::size_t run() {
    std::size_t wrong = 0;
    if (context_.is_root()) {
      int devices = 0;
      cudaGetDeviceCount(&devices);
      fmt::print(
          "{} ranks on {} of {} devices, {} blocks of each rank\n{:>12} {:>10} {:>10} {:>10} {:>10} {:>8} "
          "{:>6}\n",
          context_.size(), device_.device_name(), devices, device_.blocks(), "bytes", "time_us", "alone_us",
          "nccl_us", "copy_us", "of_copy", "wrong");
    }
    for (std::size_t bytes = options_.smallest; bytes <= options_.largest; bytes *= options_.factor) {
      wrong += measure(bytes / sizeof(float));
    }
    return wrong;
  }

 private:
  std::size_t measure(std::size_t count) {
    const std::size_t bytes = count * sizeof(float);
    for (std::size_t i = 0; i < count; ++i) {
      host_[i] = static_cast<float>((i + static_cast<std::size_t>(context_.rank())) % 64);
    }
    ddl::check_cuda(cudaMemcpy(buffers_[0], host_.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    ddl::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    const double time_us = time_of([&] { all_reduce(count); });
    const double nccl_us =
        nccl_ ? time_of([&] { nccl_->all_reduce(buffers_[0], buffers_[1], count, stream_); }) : 0;
    std::vector<double> alone;
    for (int i = 0; i < 50; ++i) {
      meet();
      const auto begin = std::chrono::steady_clock::now();
      all_reduce(count);
      device_.wait(stream_);
      alone.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    const double alone_us = slowest(perf::median_of(alone));
    meet();
    const double copy_us = context_.is_root() ? copy_time(bytes) : 0;
    meet();
    const std::size_t wrong = count_wrong(count);
    if (!context_.is_root()) return 0;
    const double of_copy = static_cast<double>(context_.size()) * copy_us / time_us;
    fmt::print("{:>12} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.2f} {:>6}\n", bytes, time_us, alone_us,
               nccl_us, copy_us, of_copy, wrong);
    if (json_.is_open()) {
      json_
          << fmt::format(
                 R"({{"benchmark":"device_perf","collective":"all_reduce","type":"f32","device":"{}",)"
                 R"("ranks":{},"blocks":{},"nccl":{},"reproducible":{},"bytes":{},"time_us":{:.5g},"alone_us":{:.5g},"nccl_us":{:.5g},)"
                 R"("copy_us":{:.5g},)"
                 R"("of_copy":{:.4g},"wrong":{}}})",
                 device_.device_name(), context_.size(), device_.blocks(), nccl_.has_value(),
                 options_.reproducible, bytes, time_us, alone_us, nccl_us, copy_us, of_copy, wrong)
          << std::endl;
    }
    return wrong;
  }

  /// The time of a call in us: the median of the slowest rank's means.
  template <typename Call>
  double time_of(const Call& call) {
    meet();
    for (int i = 0; i < 5; ++i) call();
    device_.wait(stream_);
    std::vector<double> times;
    for (int repetition = 0; repetition < 5; ++repetition) {
      meet();
      events_.begin(stream_);
      for (std::size_t i = 0; i < options_.iterations; ++i) call();
      events_.end(stream_);
      device_.wait(stream_);
      times.push_back(slowest(events_.us() / static_cast<double>(options_.iterations)));
    }
    return perf::median_of(times);
  }
  void all_reduce(std::size_t count) {
    device_.all_reduce(buffers_[0], buffers_[1], count, ddl::DataType::f32, ddl::ReduceOp::sum, stream_);
  }
  void meet() { context_.communicator().barrier(); }
  double slowest(double value) {
    context_.communicator().all_reduce(std::span(&value, 1), ddl::ReduceOp::max);
    return value;
  }

  double copy_time(std::size_t bytes) {
    std::vector<double> times;
    for (int repetition = 0; repetition < 6; ++repetition) {
      events_.begin(stream_);
      for (std::size_t i = 0; i < options_.iterations; ++i) {
        ddl::check_cuda(cudaMemcpyAsync(buffers_[1], buffers_[0], bytes, cudaMemcpyDeviceToDevice, stream_),
                        "cudaMemcpyAsync");
      }
      events_.end(stream_);
      ddl::check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
      if (repetition > 0) times.push_back(events_.us() / static_cast<double>(options_.iterations));
    }
    return perf::median_of(times);
  }

  std::size_t count_wrong(std::size_t count) {
    meet();
    all_reduce(count);
    device_.wait(stream_);
    meet();
    ddl::check_cuda(cudaMemcpy(host_.data(), buffers_[1], count * sizeof(float), cudaMemcpyDeviceToHost),
                    "cudaMemcpy");
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      float expected = 0;
      for (int rank = 0; rank < context_.size(); ++rank) {
        expected += static_cast<float>((i + static_cast<std::size_t>(rank)) % 64);
      }
      wrong += host_[i] == expected ? 0 : 1;
    }
    context_.communicator().all_reduce(std::span(&wrong, 1));
    return static_cast<std::size_t>(wrong);
  }

  ddl::Context& context_;
  const Options& options_;
  ddl::DeviceCommunicator device_;
  float* buffers_[2];
  std::vector<float> host_;
  cudaStream_t stream_ = nullptr;
  perf::DeviceTimer events_;
  std::ofstream json_;
  std::optional<DirectNccl> nccl_;
};

}  // namespace

int main(int count, char** arguments) {
  perf::prepare_devices();
  Options options;
  return perf::main_of_threads(
      "device_perf", help, count, arguments, [&](const auto& words, perf::RankJob& job) {
        options = parse(words);
        job.ranks = options.ranks;
        job.options.context.reproducible = options.reproducible;
        return [&](ddl::Context& context) { return Benchmark(context, options).run(); };
      });
}
