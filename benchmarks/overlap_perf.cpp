// How much of the gradients' reduction overlaps with backward; see --help.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/gradient_buffer.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/tools/command_line.hpp"
#include "perf/machine.hpp"
#include "perf/stopwatch.hpp"

namespace {

constexpr std::string_view help =
    R"(overlap_perf: how much of the gradients' reduction overlaps with backward

  mpirun -n RANKS overlap_perf [--name value ...]

Runs training steps that sleep instead of computing: a third of the compute time is forward; in the other two thirds,
backward, gradients become ready one after the other, the last registered first, each written just before.
GradientReducer reduces them meanwhile. Times are medians over all steps of the slowest rank's time.

  --compute-ms 360     forward and backward together
  --bytes 7176683      bytes of f32 gradients. The default takes as long at 1 Gb/s as the article's 717,668,352 bytes
                       at 100 Gb/s
  --parameters 200     number of parameters, of equal size
  --bucket-bytes 0     0: the library's choice
  --wire f32           type between hosts: f32, bf16 or f16
  --steps 12           timed steps, after 2 untimed ones
  --undisturbed 100    repeats a step, at most four times, while the hypervisor of a virtual machine takes more than
                       this percentage of a machine's time; the least disturbed repetition counts
  --spin               spins instead of sleeping, for no more ranks than processors; takes no value
  --after-backward     reduces after backward instead of during it; takes no value
  --leave-sums         leaves the division by the weight to the optimiser; takes no value
  --rows 0             if not 0, measures an embedding with this many rows instead, whose gradient travels alternately
                       by rows and whole
  --width 1024         elements of a row of the embedding
  --tokens 3200        number of Zipf-distributed tokens that each rank looks up
  --json FILE          appends a line

Prints
  step_ms       time of a step
  compute_ms    the requested compute time
  reduce_ms     time of a step without compute: the reduction alone
  bound_ms      1.05 max(forward + backward, forward + reduction) + the times of the first and the last bucket
  efficiency    compute_ms / step_ms
  own_ms        time of a step's calls of the reducer, including those that wait
  stolen        (JSON) the share of the machine's time that its hypervisor took; with a large share the other times are
                not meaningful
)";

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Options {
  double compute_ms = 360;
  std::size_t bytes = 7'176'683;
  std::size_t parameters = 200;
  std::size_t bucket_bytes = 0;
  std::string wire = "f32";
  std::size_t steps = 12;
  bool spin = false;
  double undisturbed = 100;
  bool after_backward = false;
  bool leave_sums = false;
  std::size_t rows = 0;
  std::size_t width = 1024;
  std::size_t tokens = 3200;
  std::string json;
};

Options parse(std::span<const std::string> arguments) {
  using ddl::tools::Flag;
  constexpr std::array flags = {
      Flag{"--compute-ms", true},   Flag{"--bytes", true}, Flag{"--parameters", true},
      Flag{"--bucket-bytes", true}, Flag{"--wire", true},  Flag{"--steps", true},
      Flag{"--undisturbed", true},  Flag{"--spin"},        Flag{"--after-backward"},
      Flag{"--leave-sums"},         Flag{"--rows", true},  Flag{"--width", true},
      Flag{"--tokens", true},       Flag{"--json", true}};
  constexpr std::size_t most = std::size_t{1} << 40;
  const ddl::tools::CommandLine line = ddl::tools::parse_flags(arguments, flags);
  Options options;
  line.read("--compute-ms", options.compute_ms, 0, 1e6);
  line.read("--bytes", options.bytes, 1, most);
  line.read("--parameters", options.parameters, 1, most);
  line.read("--bucket-bytes", options.bucket_bytes, 0, most);
  line.read("--wire", options.wire, {{"f32", "f32"}, {"bf16", "bf16"}, {"f16", "f16"}});
  line.read("--steps", options.steps, 1, most);
  line.read("--undisturbed", options.undisturbed, 0, 100);
  options.spin = line.has("--spin");
  options.after_backward = line.has("--after-backward");
  options.leave_sums = line.has("--leave-sums");
  line.read("--rows", options.rows, 0, most);
  line.read("--width", options.width, 1, most);
  line.read("--tokens", options.tokens, 1, most);
  line.read("--json", options.json);
  if (options.bytes / sizeof(float) < options.parameters) {
    throw ddl::tools::UsageError(
        fmt::format("--bytes: found {}, expected 4 or more a parameter", options.bytes));
  }
  return options;
}

ddl::DataType wire_of(const Options& options) {
  if (options.wire == "bf16") return ddl::DataType::bf16;
  return options.wire == "f16" ? ddl::DataType::f16 : ddl::DataType::f32;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// The slowest rank's value.
double slowest(ddl::Context& context, double value) {
  context.communicator().all_reduce(std::span(&value, 1), ddl::ReduceOp::max);
  return value;
}

std::vector<ddl::GradientShape> shapes(const Options& options) {
  const std::size_t elements = options.bytes / sizeof(float);
  std::vector<ddl::GradientShape> shapes;
  for (std::size_t i = 0; i < options.parameters; ++i) {
    const std::size_t count = elements / options.parameters + (i < elements % options.parameters ? 1 : 0);
    shapes.push_back({fmt::format("parameter {}", i), count});
  }
  return shapes;
}

/// The weight of a rank's gradients. Not 1, with which a single rank would have no means to make.
constexpr double tokens_a_rank = 3200;

struct Times {
  double step_ms = 0;
  double own_ms = 0;
};

/// Stands in for forward and backward.
void compute_until(Clock::time_point end, bool spin) {
  if (!spin) return std::this_thread::sleep_until(end);
  static std::vector<float> values(16'384, 1.0f);
  while (Clock::now() < end) {
    for (float& value : values) value = value * 0.999f + 0.001f;
  }
}

/// Steps of a reducer in which compute is only simulated, and gradients are written.
class Training {
 public:
  Training(ddl::Context& context, ddl::GradientReducer& reducer, std::span<const ddl::Gradient> gradients,
           const Options& options)
      : context_(context), reducer_(reducer), gradients_(gradients), options_(options) {}

  Times measure(double compute_ms) {
    std::vector<double> steps, own;
    for (std::size_t i = 0; i < options_.steps + 2; ++i) {
      const auto once = [&] {
        context_.communicator().barrier();
        return step(compute_ms);
      };
      const Times times =
          perf::least_disturbed(context_.communicator(), options_.undisturbed / 100, repeated_, once);
      const double slowest_step = slowest(context_, times.step_ms);
      if (i < 2) continue;
      steps.push_back(slowest_step);
      own.push_back(times.own_ms);
    }
    return {median(steps), slowest(context_, median(own))};
  }
  /// The number of repeated steps so far.
  [[nodiscard]] int repeated() const noexcept { return repeated_; }

 private:
  Times step(double compute_ms) {
    const Clock::time_point begin = Clock::now();
    Milliseconds own{};
    const auto timed = [&](const auto& call) {
      const Clock::time_point start = Clock::now();
      call();
      own += Clock::now() - start;
    };
    const double forward = compute_ms / 3;
    const auto parameters = static_cast<double>(gradients_.size());
    timed([&] { reducer_.begin(tokens_a_rank); });
    for (std::size_t left = gradients_.size(); left-- > 0;) {
      const double done = parameters - static_cast<double>(left);
      const Milliseconds ready_at(forward + (compute_ms - forward) * done / parameters);
      if (compute_ms > 0) {
        compute_until(begin + std::chrono::duration_cast<Clock::duration>(ready_at), options_.spin);
      }
      std::ranges::fill(gradients_[left].values.as<float>(), 1.0f);
      timed([&] { reducer_.ready(left); });
    }
    timed([&] { reducer_.wait(); });
    return {Milliseconds(Clock::now() - begin).count(), own.count()};
  }

  ddl::Context& context_;
  ddl::GradientReducer& reducer_;
  std::span<const ddl::Gradient> gradients_;
  const Options& options_;
  int repeated_ = 0;
};

class Report {
 public:
  Report(ddl::Context& context, const Options& options) : context_(context) {
    if (options.json.empty()) return;
    context.root_only("open --json", [&] {
      json_.open(options.json, std::ios::app);
      if (!json_) {
        throw ddl::Error(ddl::ErrorCode::io, fmt::format("--json {}: cannot write", options.json));
      }
    });
  }
  void line(const std::string& json) {
    if (json_.is_open()) json_ << json << std::endl;
  }
  /// The time that the hypervisor has taken from rank 0's machine so far, for a JSON line.
  [[nodiscard]] std::string stolen() const {
    const std::optional<double> share = stolen_.share();
    return share ? fmt::format("{:.4f}", *share) : "null";
  }
  template <typename... Arguments>
  void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (context_.is_root()) fmt::print(format, std::forward<Arguments>(arguments)...);
  }

 private:
  ddl::Context& context_;
  std::ofstream json_;
  perf::StolenTime stolen_;
};

void measure_overlap(ddl::Context& context, const Options& options, Report& report) {
  const ddl::GradientBuffer gradients(context, shapes(options));
  ddl::GradientReducer reducer(context, gradients.gradients(),
                               {.gradients = ddl::GradientKind::sum,
                                .bucket_bytes = options.bucket_bytes,
                                .overlap = !options.after_backward,
                                .wire = wire_of(options),
                                .leave_sums = options.leave_sums});
  Training training(context, reducer, gradients.gradients(), options);
  const double reduce_ms = training.measure(0).step_ms;
  const Times times = training.measure(options.compute_ms);
  const double bucket_share =
      std::min(1.0, static_cast<double>(reducer.largest_bucket()) / static_cast<double>(reducer.bytes()));
  const double forward = options.compute_ms / 3;
  const double bound =
      1.05 * std::max(options.compute_ms, forward + reduce_ms) + 2 * bucket_share * reduce_ms;
  const double efficiency = options.compute_ms / times.step_ms;
  report.print(
      "{} ranks on {} hosts, {} bytes in {} parameters, {} buckets of up to {} bytes ({:.1f}%), wire {}, "
      "reduced {} backward\n"
      "  step_ms {:.2f}  compute_ms {:.2f}  reduce_ms {:.2f}  bound_ms {:.2f}  efficiency {:.3f}  own_ms "
      "{:.3f}\n",
      context.size(), context.hosts(), reducer.bytes(), options.parameters, reducer.buckets(),
      reducer.largest_bucket(), 100 * bucket_share, options.wire, options.after_backward ? "after" : "during",
      times.step_ms, options.compute_ms, reduce_ms, bound, efficiency, times.own_ms);
  report.line(fmt::format(
      R"({{"benchmark":"overlap_perf","ranks":{},"hosts":{},"bytes":{},"parameters":{},"buckets":{},)"
      R"("bucket_bytes":{},"wire":"{}","after_backward":{},"leave_sums":{},"spin":{},"step_ms":{:.4g},)"
      R"("compute_ms":{},"reduce_ms":{:.4g},)"
      R"("bound_ms":{:.4g},"efficiency":{:.4g},"own_ms":{:.4g},"repeated":{},"stolen":{}}})",
      context.size(), context.hosts(), reducer.bytes(), options.parameters, reducer.buckets(),
      reducer.largest_bucket(), options.wire, options.after_backward, options.leave_sums, options.spin,
      times.step_ms, options.compute_ms, reduce_ms, bound, efficiency, times.own_ms, training.repeated(),
      report.stolen()));
}

/// The rows that Zipf-distributed tokens look up: the k-th most frequent row is k times as rare as the first.
class ZipfTokens {
 public:
  ZipfTokens(std::size_t rows, std::uint64_t seed) : random_(seed), cumulative_(rows) {
    double sum = 0;
    for (std::size_t k = 0; k < rows; ++k) cumulative_[k] = sum += 1.0 / static_cast<double>(k + 1);
  }
  std::vector<std::int32_t> draw(std::size_t tokens) {
    std::vector<std::int32_t> rows(tokens);
    for (std::int32_t& row : rows) {
      const double at = cumulative_.back() * static_cast<double>(random_() >> 11) * 0x1p-53;
      row = static_cast<std::int32_t>(std::ranges::lower_bound(cumulative_, at) - cumulative_.begin());
    }
    return rows;
  }

 private:
  std::mt19937_64 random_;
  std::vector<double> cumulative_;
};

void measure_rows(ddl::Context& context, const Options& options, Report& report) {
  const std::size_t count = options.rows * options.width;
  const ddl::GradientBuffer by_rows(context, {{"embedding", count, options.width}});
  const ddl::GradientBuffer whole(context, {{"embedding", count}});
  const ddl::GradientReducerOptions reducer_options{.gradients = ddl::GradientKind::sum};
  ddl::GradientReducer sparse(context, by_rows.gradients(), reducer_options);
  ddl::GradientReducer dense(context, whole.gradients(), reducer_options);
  ZipfTokens tokens(options.rows, static_cast<std::uint64_t>(context.rank()) + 1);
  std::vector<double> sparse_ms, dense_ms, share;
  double unequal = 0;
  for (std::size_t i = 0; i < options.steps + 1; ++i) {
    const std::vector<std::int32_t> rows = tokens.draw(options.tokens);
    for (const auto* buffer : {&by_rows, &whole}) {
      std::ranges::fill(buffer->values(), 0.0f);
      for (const std::int32_t row : rows) {  // integers, so that sums are exact in any order
        for (float& value :
             buffer->values().subspan(static_cast<std::size_t>(row) * options.width, options.width))
          value += 1;
      }
    }
    const auto timed = [&](ddl::GradientReducer& reducer, bool with_rows, std::vector<double>& times) {
      context.communicator().barrier();
      const Clock::time_point begin = Clock::now();
      with_rows ? reducer.ready(0, rows) : reducer.ready(0);
      const ddl::ReducedStep reduced = reducer.wait(1);
      const double taken = slowest(context, Milliseconds(Clock::now() - begin).count());
      if (i > 0) times.push_back(taken);
      return reduced.bytes;
    };
    const auto sent = static_cast<double>(timed(sparse, true, sparse_ms));
    share.push_back(sent / static_cast<double>(timed(dense, false, dense_ms)));
    if (!std::ranges::equal(by_rows.values(), whole.values())) ++unequal;
  }
  unequal = slowest(context, unequal);
  report.print(
      "{} ranks on {} hosts, {} rows of {}, {} tokens a rank\n"
      "  bytes by rows {:.1f}% of whole  by rows {:.1f} ms  whole {:.1f} ms  results that differ {}\n",
      context.size(), context.hosts(), options.rows, options.width, options.tokens, 100 * median(share),
      median(sparse_ms), median(dense_ms), unequal);
  report.line(fmt::format(
      R"({{"benchmark":"overlap_perf rows","ranks":{},"hosts":{},"rows":{},"width":{},"tokens":{},)"
      R"("bytes_share":{:.4g},"by_rows_ms":{:.4g},"whole_ms":{:.4g},"differ":{},"stolen":{}}})",
      context.size(), context.hosts(), options.rows, options.width, options.tokens, median(share),
      median(sparse_ms), median(dense_ms), unequal, report.stolen()));
}

int run(ddl::Context& context, std::span<const std::string> arguments) {
  Options options;
  context.on_all_ranks("command line", [&] { options = parse(arguments); });
  Report report(context, options);
  options.rows > 0 ? measure_rows(context, options, report) : measure_overlap(context, options, report);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  return ddl::tools::main_of(
      "overlap_perf", help, count, arguments, [](const std::vector<std::string>& words) {
        return ddl::Context::run_from_environment([&](ddl::Context& context) { return run(context, words); });
      });
}
