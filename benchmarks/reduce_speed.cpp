// The speed of the reduction kernels; see --help.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "ddl/error.hpp"
#include "ddl/tools/command_line.hpp"

namespace {

constexpr std::string_view help = R"(The speed of the reduction kernels.

  reduce_speed [--bytes B] [--inputs N] [--targets N] [--place in|out] [--threads T] [--rounds R]

Prints a line for each type, operation and instruction set of this machine. B is the size in bytes of each operand
of all threads together. With `--place in`, targets are inputs, as far as there are inputs. GB/s counts each input
as read once and each target as written once. `of copy` is the speed relative to the C library's memmove by 64
bytes inside the operands (in place) or memcpy between them; it copies half as many bytes, so that it reads and
writes the same number. The two alternate; times are medians over R rounds. Without arguments: 2 inputs and
targets, in place, of 16 KiB, 256 KiB and 64 MiB, with one thread.
)";

using namespace ddl;
using namespace ddl::collectives;
using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::size_t> bytes = {std::size_t{16} << 10, std::size_t{256} << 10, std::size_t{64} << 20};
  std::size_t inputs = 2;
  std::size_t targets = 2;
  bool in_place = true;
  int threads = 1;
  int rounds = 11;
};

Options parse(std::span<const std::string> arguments) {
  using tools::Flag;
  constexpr std::array flags = {Flag{"--bytes", true}, Flag{"--inputs", true},  Flag{"--targets", true},
                                Flag{"--place", true}, Flag{"--threads", true}, Flag{"--rounds", true}};
  const tools::CommandLine line = tools::parse_flags(arguments, flags);
  Options options;
  line.read("--bytes", options.bytes, 4096, std::size_t{1} << 34);
  line.read("--inputs", options.inputs, 1, 64);
  line.read("--targets", options.targets, 1, 64);
  line.read("--place", options.in_place, {{"in", true}, {"out", false}});
  line.read("--threads", options.threads, 1, 256);
  line.read("--rounds", options.rounds, 1, 10'000);
  return options;
}

/// Operands that all threads share; thread t has the t-th piece of each.
class Operands {
 public:
  Operands(const Options& options, std::size_t bytes) : options_(options) {
    piece_ = bytes / static_cast<std::size_t>(options.threads) / 128 * 128;
    if (piece_ < 1024) {
      throw tools::UsageError(
          fmt::format("--bytes: found {}, expected at least 1,024 for each thread", bytes));
    }
    if (options.in_place && options.inputs == 1 && options.targets == 1) {
      throw tools::UsageError(
          "--inputs 1 --targets 1: found --place in, expected out: nothing is to be done");
    }
    const std::size_t aliased = options.in_place ? std::min(options.inputs, options.targets) : 0;
    const std::size_t operands = options.inputs + options.targets - aliased;
    // A distance that is no power of two keeps operands from evicting each other from the caches.
    stride_ = piece_ * static_cast<std::size_t>(options.threads) + 4096 + 256;
    memory_.resize(operands * stride_ + 64);
    std::byte* start = memory_.data() + 64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64;
    for (std::size_t i = 0; i < operands; ++i) operands_.push_back(start + i * stride_);
    aliased_ = aliased;
  }

  [[nodiscard]] std::size_t piece() const { return piece_; }

  void reduce(InstructionSet set, DataType type, ReduceOp op, int thread) const {
    std::array<std::byte*, 64> targets;
    std::array<const std::byte*, 64> inputs;
    const std::size_t at = piece_ * static_cast<std::size_t>(thread);
    for (std::size_t i = 0; i < options_.inputs; ++i) inputs[i] = operands_[i] + at;
    for (std::size_t i = 0; i < options_.targets; ++i) {
      targets[i] = operands_[i < aliased_ ? i : options_.inputs + i - aliased_] + at;
    }
    const int divisor = op == ReduceOp::avg ? static_cast<int>(options_.inputs) : 1;
    reduce_with(set, type, op, {targets.data(), options_.targets}, {inputs.data(), options_.inputs},
                piece_ / size_of(type), divisor);
  }

  /// Copies half as many bytes as the reduction has: in place, inside each operand by 64 bytes; else from the
  /// first half of the operands to the second.
  void copy(int thread) const {
    const std::size_t at = piece_ * static_cast<std::size_t>(thread);
    const std::size_t half = operands_.size() / 2;
    std::size_t left = (options_.inputs + options_.targets) * piece_ / 2;
    for (std::size_t i = 0; left > 0; ++i) {
      const std::size_t length = std::min(left, piece_);
      if (options_.in_place) {
        std::byte* from = operands_[i % operands_.size()] + at;
        std::memmove(from + 64, from, length - 64);
      } else {
        std::memcpy(operands_[half + i % half] + at, operands_[i % half] + at, length);
      }
      left -= length;
    }
  }

 private:
  const Options& options_;
  std::size_t piece_ = 0;
  std::size_t stride_ = 0;
  std::size_t aliased_ = 0;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> operands_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The median times in seconds of two functions, which run alternately.
std::pair<double, double> measure(const Options& options, std::size_t repeat,
                                  const std::function<void(int)>& first,
                                  const std::function<void(int)>& second) {
  std::array<std::vector<double>, 2> times;
  std::barrier together(options.threads);
  const auto work = [&](int thread) {
    for (int round = -1; round < options.rounds; ++round) {
      for (std::size_t which = 0; which < 2; ++which) {
        together.arrive_and_wait();
        const auto start = Clock::now();
        for (std::size_t i = 0; i < repeat; ++i) (which == 0 ? first : second)(thread);
        together.arrive_and_wait();
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        if (thread == 0 && round >= 0) times[which].push_back(seconds / static_cast<double>(repeat));
      }
    }
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < options.threads; ++thread) others.emplace_back(work, thread);
  work(0);
  others.clear();
  return {median(times[0]), median(times[1])};
}

void run(const Options& options, std::size_t bytes) {
  const Operands operands(options, bytes);
  const double traffic = static_cast<double>(options.inputs + options.targets) *
                         static_cast<double>(operands.piece()) * options.threads;
  const std::size_t repeat = std::max<std::size_t>(1, (std::size_t{4} << 20) / operands.piece());
  for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16, DataType::f64, DataType::i32,
                              DataType::i64, DataType::u8}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod}) {
      for (const InstructionSet set :
           {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512}) {
        if (set > native_instruction_set()) continue;
        const auto [reduced, copied] = measure(
            options, repeat, [&](int thread) { operands.reduce(set, type, op, thread); },
            [&](int thread) { operands.copy(thread); });
        fmt::print("{:>5} {:>5} {:>7} {:>8} {:>12} {:>9} {:>9.2f} {:>8.1f} {:>8.2f}\n", to_string(type),
                   to_string(op), options.inputs, options.targets, bytes, to_string(set), reduced * 1e6,
                   traffic / reduced / 1e9, copied / reduced);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  return tools::main_of("reduce_speed", help, count, arguments, [](const std::vector<std::string>& words) {
    const Options options = parse(words);
    fmt::print("{:>5} {:>5} {:>7} {:>8} {:>12} {:>9} {:>9} {:>8} {:>8}\n", "type", "op", "inputs", "targets",
               "bytes", "set", "time us", "GB/s", "of copy");
    for (const std::size_t bytes : options.bytes) run(options, bytes);
    return 0;
  });
}
