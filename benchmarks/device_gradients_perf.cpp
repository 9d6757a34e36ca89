// The cost of reducing gradients on devices; see --help.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/device/cuda_check.hpp"
#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/tools/command_line.hpp"
#include "perf/device_timer.hpp"
#include "perf/prepare_devices.hpp"
#include "perf/rank_threads.hpp"
#include "perf/stopwatch.hpp"

namespace {

constexpr std::string_view help =
    R"(device_gradients_perf: a step of GradientReducer on devices, without a backward pass

  device_gradients_perf [--name value ...]

Ranks are threads of this process, distributed over the devices.

  --ranks 1
  --bytes 717668352           bytes of gradients; the default is the article's model
  --parameters 200            number of parameters, of equal size and adjacent in memory
  --bucket-bytes 26214400     0: the library's choice
  --steps 20                  timed steps, after 3 untimed ones
  --json FILE                 appends JSON lines

Prints medians, for gradients that become means and for gradients that are left as sums:
  host_us      time of a step's calls on the host
  device_us    time on the device from the first ready to the last mean
  copy_us      time of a cudaMemcpyAsync of the same bytes from device to device
  copies       device_us / copy_us; means are read and written once, sums only read
  wrong        number of wrong elements
)";

struct Options {
  int ranks = 1;
  std::size_t bytes = 717'668'352;
  std::size_t parameters = 200;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  std::size_t steps = 20;
  std::string json;
};

Options parse(std::span<const std::string> arguments) {
  using ddl::tools::Flag;
  constexpr std::array flags = {Flag{"--ranks", true},      Flag{"--bytes", true},
                                Flag{"--parameters", true}, Flag{"--bucket-bytes", true},
                                Flag{"--steps", true},      Flag{"--json", true}};
  const ddl::tools::CommandLine line = ddl::tools::parse_flags(arguments, flags);
  Options options;
  line.read("--ranks", options.ranks, 1, 1024);
  line.read("--bytes", options.bytes, sizeof(float), SIZE_MAX);
  line.read("--parameters", options.parameters, 1, SIZE_MAX);
  line.read("--bucket-bytes", options.bucket_bytes, 0, SIZE_MAX);
  line.read("--steps", options.steps, 1, SIZE_MAX);
  line.read("--json", options.json);
  return options;
}

class Benchmark {
 public:
  Benchmark(ddl::Context& context, const Options& options)
      : context_(context), options_(options), communicator_(context), host_(options.bytes / sizeof(float)) {
    const std::size_t bytes = host_.size() * sizeof(float);
    values_ = reinterpret_cast<float*>(communicator_.allocate(bytes).data);
    other_ = reinterpret_cast<float*>(communicator_.allocate(bytes).data);
    ddl::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    if (context.is_root() && !options.json.empty()) json_.open(options.json, std::ios::app);
  }

  std::size_t run() {
    if (context_.is_root()) {
      fmt::print("{} ranks on {}, {} bytes in {} parameters\n{:>8} {:>8} {:>10} {:>10} {:>10} {:>7} {:>6}\n",
                 context_.size(), communicator_.device_name(), options_.bytes, options_.parameters, "become",
                 "buckets", "host_us", "device_us", "copy_us", "copies", "wrong");
    }
    std::size_t wrong = 0;
    for (const bool leave_sums : {false, true}) wrong += measure(leave_sums);
    return wrong;
  }

 private:
  std::vector<ddl::Gradient> gradients() const {
    std::vector<ddl::Gradient> result;
    const std::size_t parameters = std::min(options_.parameters, host_.size());
    std::size_t at = 0;
    for (std::size_t i = 0; i < parameters; ++i) {
      const std::size_t count = host_.size() / parameters + (i < host_.size() % parameters ? 1 : 0);
      result.push_back({fmt::format("parameter {}", i), {values_ + at, count}});
      at += count;
    }
    return result;
  }

  std::size_t measure(bool leave_sums) {
    ddl::GradientReducer reducer(communicator_, gradients(),
                                 {.gradients = ddl::GradientKind::sum,
                                  .bucket_bytes = options_.bucket_bytes,
                                  .leave_sums = leave_sums});
    perf::DeviceTimer timer;
    std::vector<double> host_us, device_us;
    for (std::size_t i = 0; i < options_.steps + 3; ++i) {
      context_.communicator().barrier();
      const auto begin = std::chrono::steady_clock::now();
      timer.begin(stream_);
      step(reducer);
      timer.end(stream_);
      const std::chrono::duration<double, std::micro> host = std::chrono::steady_clock::now() - begin;
      communicator_.wait(stream_);
      static_cast<void>(reducer.result());
      if (i < 3) continue;  // warm-up; the first step learns the order
      host_us.push_back(host.count());
      device_us.push_back(timer.us());
    }
    const std::size_t wrong = count_wrong(reducer, leave_sums);
    const double copy_us = copy_time(timer);
    double times[] = {perf::median_of(host_us), perf::median_of(device_us)};
    context_.communicator().all_reduce(std::span(times), ddl::ReduceOp::max);
    if (!context_.is_root()) return 0;
    fmt::print("{:>8} {:>8} {:>10.1f} {:>10.1f} {:>10.1f} {:>7.2f} {:>6}\n", leave_sums ? "sums" : "means",
               reducer.buckets(), times[0], times[1], copy_us, times[1] / copy_us, wrong);
    if (json_.is_open()) {
      json_
          << fmt::format(
                 R"({{"benchmark":"device_gradients_perf","device":"{}","ranks":{},"bytes":{},"parameters":{},)"
                 R"("buckets":{},"leave_sums":{},"host_us":{:.5g},"device_us":{:.5g},"copy_us":{:.5g},)"
                 R"("wrong":{}}})",
                 communicator_.device_name(), context_.size(), reducer.bytes(), options_.parameters,
                 reducer.buckets(), leave_sums, times[0], times[1], copy_us, wrong)
          << std::endl;
    }
    return wrong;
  }

  void step(ddl::GradientReducer& reducer) {
    reducer.begin(2);
    for (std::size_t i = std::min(options_.parameters, host_.size()); i-- > 0;) reducer.ready(i, stream_);
    reducer.finish(stream_);
  }

  double copy_time(perf::DeviceTimer& timer) {
    std::vector<double> times;
    context_.communicator().barrier();
    for (int i = 0; i < 10 && context_.is_root(); ++i) {
      timer.begin(stream_);
      ddl::check_cuda(
          cudaMemcpyAsync(other_, values_, host_.size() * sizeof(float), cudaMemcpyDeviceToDevice, stream_),
          "cudaMemcpyAsync");
      timer.end(stream_);
      ddl::check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
      times.push_back(timer.us());
    }
    context_.communicator().barrier();
    return perf::median_of(times);
  }

  /// Checks sums of integers over twice as many items as ranks; returns the number of wrong elements.
  std::size_t count_wrong(ddl::GradientReducer& reducer, bool leave_sums) {
    const auto value = [](std::size_t i, int rank) {
      return static_cast<float>((i + static_cast<std::size_t>(rank)) % 64);
    };
    for (std::size_t i = 0; i < host_.size(); ++i) host_[i] = value(i, context_.rank());
    const std::size_t bytes = host_.size() * sizeof(float);
    ddl::check_cuda(cudaMemcpy(values_, host_.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    ddl::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    context_.communicator().barrier();
    step(reducer);
    static_cast<void>(reducer.result());
    context_.communicator().barrier();
    ddl::check_cuda(cudaMemcpy(host_.data(), values_, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < host_.size(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < context_.size(); ++rank) sum += value(i, rank);
      const double weight = leave_sums ? 1 : 2.0 * context_.size();
      wrong += host_[i] == static_cast<float>(sum * (1 / weight)) ? 0 : 1;
    }
    context_.communicator().all_reduce(std::span(&wrong, 1));
    return static_cast<std::size_t>(wrong);
  }

  ddl::Context& context_;
  const Options& options_;
  ddl::DeviceCommunicator communicator_;
  std::vector<float> host_;
  float* values_ = nullptr;
  float* other_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::ofstream json_;
};

}  // namespace

int main(int count, char** arguments) {
  perf::prepare_devices();
  Options options;
  return perf::main_of_threads(
      "device_gradients_perf", help, count, arguments, [&](const auto& words, perf::RankJob& job) {
        options = parse(words);
        job.ranks = options.ranks;
        return [&](ddl::Context& context) { return Benchmark(context, options).run(); };
      });
}
