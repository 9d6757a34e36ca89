// Measures all_reduce with the columns and flags of NVIDIA's nccl-tests.
//
//   all_reduce_perf [-b min] [-e max] [-f factor] [-n iterations] [-w warm-up iterations] [-c 0|1]
//                   [-d type] [-o op] [--in-process ranks]
//
// Sizes take K, M and G (powers of 1024). Run it alone, under mpirun, or with ranks as threads.
// time is the mean over iterations of the slowest rank; algbw = size / time;
// busbw = algbw * 2(n-1)/n, which a ring's slowest link carries. #wrong counts elements that differ
// from the expected result on any rank.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "ddl/ddl.hpp"

namespace {

using ddl::DataType;
using ddl::ReduceOp;

struct Options {
  std::size_t smallest = 8;
  std::size_t largest = std::size_t{64} << 20;
  std::size_t factor = 4;
  int iterations = 20;
  int warm_up = 5;
  bool check = true;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int in_process = 0;
};

constexpr const char* usage =
    "usage: all_reduce_perf [-b min] [-e max] [-f factor] [-n iterations] [-w warm-up] [-c 0|1]\n"
    "                       [-d u8|i32|i64|f32|f64] [-o sum|avg|min|max|prod] [--in-process ranks]\n";

[[noreturn]] void refuse(std::string_view flag, std::string_view value, std::string_view expected) {
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   fmt::format("{} '{}': expected {}\n{}", flag, value, expected, usage));
}

std::size_t parse_number(std::string_view flag, std::string_view text, std::size_t least, std::size_t most) {
  std::size_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  int shift = 0;
  if (suffix == "K") shift = 10;
  if (suffix == "M") shift = 20;
  if (suffix == "G") shift = 30;
  const bool known = suffix.empty() || shift != 0;
  if (error != std::errc{} || !known || value > (std::numeric_limits<std::size_t>::max() >> shift) ||
      (value << shift) < least || (value << shift) > most) {
    refuse(flag, text, fmt::format("a number from {} to {}, with K, M or G", least, most));
  }
  return value << shift;
}

template <typename T>
T parse_name(std::string_view flag, std::string_view text, std::initializer_list<T> choices) {
  for (const T choice : choices) {
    if (to_string(choice) == text) return choice;
  }
  std::string names;
  for (const T choice : choices) names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(choice));
  refuse(flag, text, names);
}

Options parse(const std::vector<std::string_view>& arguments) {
  constexpr std::size_t most_bytes = std::size_t{1} << 40;
  constexpr std::size_t most_times = 1'000'000;
  Options options;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view flag = arguments[i];
    if (i + 1 == arguments.size()) refuse(flag, "", "a value after it");
    const std::string_view value = arguments[i + 1];
    if (flag == "-b") {
      options.smallest = parse_number(flag, value, 1, most_bytes);
    } else if (flag == "-e") {
      options.largest = parse_number(flag, value, 1, most_bytes);
    } else if (flag == "-f") {
      options.factor = parse_number(flag, value, 2, most_times);
    } else if (flag == "-n") {
      options.iterations = static_cast<int>(parse_number(flag, value, 1, most_times));
    } else if (flag == "-w") {
      options.warm_up = static_cast<int>(parse_number(flag, value, 0, most_times));
    } else if (flag == "-c") {
      options.check = parse_number(flag, value, 0, 1) == 1;
    } else if (flag == "-d") {
      options.type =
          parse_name(flag, value, {DataType::u8, DataType::i32, DataType::i64, DataType::f32, DataType::f64});
    } else if (flag == "-o") {
      options.op = parse_name(flag, value,
                              {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::prod});
    } else if (flag == "--in-process") {
      options.in_process = static_cast<int>(parse_number(flag, value, 1, 1024));
    } else {
      refuse(flag, value, "a known flag");
    }
  }
  if (options.largest < options.smallest)
    refuse("-e", std::to_string(options.largest), "at least what -b says");
  return options;
}

/// What rank `rank` puts into element i: small whole numbers, so that every type's result is exact.
std::int64_t contribution(std::size_t i, int rank, ReduceOp op) {
  if (op == ReduceOp::prod) return rank < 5 && (i + static_cast<std::size_t>(rank)) % 3 == 0 ? 2 : 1;
  return static_cast<std::int64_t>((i + static_cast<std::size_t>(rank)) % 3);
}

std::int64_t expected(std::size_t i, int ranks, ReduceOp op) {
  std::int64_t result = contribution(i, 0, op);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t value = contribution(i, rank, op);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        result += value;
        break;
      case ReduceOp::prod:
        result *= value;
        break;
      case ReduceOp::min:
        result = std::min(result, value);
        break;
      case ReduceOp::max:
        result = std::max(result, value);
        break;
    }
  }
  return result;
}

template <ddl::Element T>
class Measurement {
 public:
  Measurement(ddl::Context& context, const Options& options) : context_(context), options_(options) {}

  void run(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(T);
    std::vector<T> values(count);
    auto& communicator = context_.communicator();
    for (int i = 0; i < options_.warm_up; ++i) communicator.all_reduce(std::span(values), options_.op);
    communicator.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < options_.iterations; ++i) communicator.all_reduce(std::span(values), options_.op);
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    communicator.all_reduce(std::span(&seconds, 1), ReduceOp::max);
    seconds /= options_.iterations;

    std::optional<std::int64_t> wrong;
    if (options_.check) wrong = count_wrong(values);
    if (!context_.is_root()) return;
    const double n = context_.size();
    const double bandwidth = static_cast<double>(count * sizeof(T)) / seconds / 1e9;
    fmt::print("{:>12} {:>12} {:>8} {:>7} {:>5} {:>11.2f} {:>8.3f} {:>8.3f} {:>7}\n", count * sizeof(T),
               count, to_string(options_.type), to_string(options_.op), -1, seconds * 1e6, bandwidth,
               bandwidth * 2 * (n - 1) / n, wrong ? std::to_string(*wrong) : "N/A");
    std::fflush(stdout);
    total_wrong_ += wrong.value_or(0);
  }
  [[nodiscard]] std::int64_t total_wrong() const { return total_wrong_; }

 private:
  std::int64_t count_wrong(std::vector<T>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(contribution(i, context_.rank(), options_.op));
    }
    context_.communicator().all_reduce(std::span(values), options_.op);
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      T right = static_cast<T>(expected(i, context_.size(), options_.op));
      if (options_.op == ReduceOp::avg) right = static_cast<T>(right / static_cast<T>(context_.size()));
      if (!(values[i] == right)) ++wrong;
    }
    context_.communicator().all_reduce(std::span(&wrong, 1), ReduceOp::sum);
    return wrong;
  }

  ddl::Context& context_;
  const Options& options_;
  std::int64_t total_wrong_ = 0;
};

template <ddl::Element T>
std::int64_t measure_as(ddl::Context& context, const Options& options) {
  if (context.is_root()) {
    fmt::print("# ddl all_reduce_perf: {} ranks on {} hosts\n", context.size(), context.hosts());
    fmt::print("#{:>11} {:>12} {:>8} {:>7} {:>5} {:>11} {:>8} {:>8} {:>7}\n", "size", "count", "type",
               "redop", "root", "time", "algbw", "busbw", "#wrong");
    fmt::print("#{:>11} {:>12} {:>8} {:>7} {:>5} {:>11} {:>8} {:>8} {:>7}\n", "(B)", "(elements)", "", "", "",
               "(us)", "(GB/s)", "(GB/s)", "");
  }
  Measurement<T> measurement(context, options);
  for (std::size_t bytes = options.smallest; bytes <= options.largest; bytes *= options.factor) {
    measurement.run(bytes);
  }
  return measurement.total_wrong();
}

int measure(ddl::Context& context, const Options& options) {
  const auto total_wrong = [&] {
    switch (options.type) {
      case DataType::u8:
        return measure_as<std::uint8_t>(context, options);
      case DataType::i32:
        return measure_as<std::int32_t>(context, options);
      case DataType::i64:
        return measure_as<std::int64_t>(context, options);
      case DataType::f32:
        return measure_as<float>(context, options);
      case DataType::f64:
        return measure_as<double>(context, options);
    }
    return std::int64_t{0};
  };
  return total_wrong() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    fmt::print("{}", usage);
    return 0;
  }
  try {
    if (std::find(arguments.begin(), arguments.end(), "--in-process") != arguments.end()) {
      const Options options = parse(arguments);
      int status = 0;
      ddl::run_in_process(options.in_process, [&](ddl::Context& context) {
        const int own = measure(context, options);
        if (context.is_root()) status = own;
      });
      return status;
    }
    return ddl::Context::run_from_environment([&](ddl::Context& context) {
      Options options;
      context.on_all_ranks("command line", [&] { options = parse(arguments); });
      return measure(context, options);
    });
  } catch (const ddl::Error& error) {
    fmt::print(stderr, "all_reduce_perf: {}\n", error.what());
    return error.code() == ddl::ErrorCode::invalid_argument ? 2 : 1;
  }
}
