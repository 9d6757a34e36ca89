#include "perf/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ddl/tools/command_line.hpp"
#include "ddl/topology/plan.hpp"

namespace perf {

using ddl::DataType;
using ddl::ReduceOp;
using ddl::tools::CommandLine;
using ddl::tools::Flag;
using ddl::topology::Collective;

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 40U;
constexpr std::size_t most_times = 1'000'000;
constexpr std::size_t batched_below = std::size_t{64} << 10U;
constexpr int batch = 20;

constexpr std::array all_ops = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};
constexpr std::array all_types = {DataType::u8,  DataType::i32,  DataType::i64, DataType::f16,
                                  DataType::f32, DataType::bf16, DataType::f64};

/// The names of types in nccl-tests.
constexpr std::array<std::pair<std::string_view, DataType>, 8> nccl_types = {{{"uint8", DataType::u8},
                                                                              {"int32", DataType::i32},
                                                                              {"int", DataType::i32},
                                                                              {"int64", DataType::i64},
                                                                              {"half", DataType::f16},
                                                                              {"bfloat16", DataType::bf16},
                                                                              {"float", DataType::f32},
                                                                              {"double", DataType::f64}}};

[[noreturn]] void refuse(std::string_view flag, std::string_view value, std::string_view expected) {
  throw ddl::tools::UsageError(fmt::format("{}: found '{}', expected {}", flag, value, expected));
}

const std::vector<std::pair<std::string_view, BaselineKind>> baselines = {{"mpi", BaselineKind::mpi},
                                                                          {"gloo", BaselineKind::gloo},
                                                                          {"loop", BaselineKind::loop},
                                                                          {"threads", BaselineKind::threads},
                                                                          {"none", BaselineKind::none}};

/// Reads a name, or "all" for all values.
template <typename Value, std::size_t n>
void read_all_or_one(
    const CommandLine& line, std::string_view flag, std::vector<Value>& to, const std::array<Value, n>& all,
    std::span<const std::pair<std::string_view, std::type_identity_t<Value>>> other_names = {}) {
  std::vector<std::pair<std::string_view, std::vector<Value>>> choices;
  for (const Value value : all) choices.push_back({to_string(value), {value}});
  for (const auto& [name, value] : other_names) choices.push_back({name, {value}});
  choices.push_back({"all", {all.begin(), all.end()}});
  line.read(flag, to, choices);
}

CommandLine read_flags(Collective collective, std::span<const std::string> arguments) {
  std::vector<Flag> flags = {{"--minbytes", true, 'b'},
                             {"--maxbytes", true, 'e'},
                             {"--stepfactor", true, 'f'},
                             {"--stepbytes", true, 'i'},
                             {"--iters", true, 'n'},
                             {"--warmup_iters", true, 'w'},
                             {"--agg_iters", true, 'm'},
                             {"--check", true, 'c'},
                             {"--datatype", true, 'd'},
                             {"--place", true},
                             {"--registered", true},
                             {"--baseline", true},
                             {"--json", true},
                             {"--in-process", true},
                             {"--undisturbed", true},
                             {"--predict"}};
  if (has_op(collective)) flags.push_back({"--op", true, 'o'});
  if (ddl::topology::has_root(collective)) {
    flags.push_back({"--root", true, 'r'});
  }
  return ddl::tools::parse_flags(arguments, flags);
}

}  // namespace

std::string_view to_string(BaselineKind kind) noexcept {
  return std::ranges::find(baselines, kind, [](const auto& named) { return named.second; })->first;
}

bool has_op(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

Settings parse(Collective collective, const std::vector<std::string>& arguments) {
  const CommandLine line = read_flags(collective, arguments);
  Settings settings;
  settings.collective = collective;
  line.read("--minbytes", settings.smallest, 0, most_bytes);
  line.read("--maxbytes", settings.largest, 0, most_bytes);
  line.read("--stepfactor", settings.factor, 2, most_times);
  line.read("--stepbytes", settings.increment, 1, most_bytes);
  line.read("--iters", settings.iterations, 1, most_times);
  line.read("--warmup_iters", settings.warm_up, 0, most_times);
  line.read("--agg_iters", settings.calls, 1, most_times);
  line.read("--check", settings.check, {{"0", false}, {"1", true}});
  read_all_or_one(line, "--datatype", settings.types, all_types, nccl_types);
  read_all_or_one(line, "--op", settings.ops, all_ops);
  if (line.value("--root") == "all") {
    settings.root = Settings::all_roots;
  } else {
    line.read("--root", settings.root, 0, most_times);
  }
  std::pair place{settings.in_place, settings.out_of_place};
  line.read("--place", place, {{"in", {true, false}}, {"out", {false, true}}, {"both", {true, true}}});
  std::tie(settings.in_place, settings.out_of_place) = place;
  line.read("--registered", settings.registered, {{"0", false}, {"1", true}});
  line.read("--baseline", settings.baseline, baselines);
  line.read("--json", settings.json);
  line.read("--in-process", settings.in_process, 1, 1024);
  double undisturbed = 100 * settings.disturbance;
  line.read("--undisturbed", undisturbed, 0, 100);
  settings.disturbance = undisturbed / 100;
  settings.predict = line.has("--predict");
  if (line.has("--stepfactor") && line.has("--stepbytes")) {
    refuse("-i", std::to_string(settings.increment), "either a factor (-f) or an increment (-i)");
  }
  if (!line.has("--maxbytes")) settings.largest = std::max(settings.largest, settings.smallest);
  if (settings.largest < settings.smallest) {
    refuse("-e", std::to_string(settings.largest), fmt::format("at least {}, as -b says", settings.smallest));
  }
  if (settings.smallest == 0 && settings.largest > 0 && settings.increment == 0) {
    refuse("-b", "0", "an increment (-i) with it, because no factor leads away from 0");
  }
  const bool is_for_threads = settings.baseline == BaselineKind::threads;
  if (is_for_threads && settings.in_process == 0) {
    refuse("--baseline", "threads", "--in-process with it: it compares ranks that are threads");
  }
  if (settings.baseline == BaselineKind::mpi && settings.in_process > 0) {
    refuse("--baseline", "mpi", "no --in-process with it: MPI's ranks are processes; use mpirun");
  }
  if ((is_for_threads || settings.baseline == BaselineKind::loop) && collective != Collective::all_reduce) {
    refuse("--baseline", to_string(settings.baseline), "mpi, gloo or none: it is there for all_reduce alone");
  }
  return settings;
}

std::string help(Collective collective) {
  const std::string name = fmt::format("{}_perf", to_string(collective));
  std::string text = fmt::format(
      R"({0}: measures {1} with the flags and columns of NVIDIA's nccl-tests

  mpirun -n 2 {0} -b 8 -e 64M -f 2 --baseline mpi     every power of two, compared with MPI's {1}
  mpirun -n 4 {0} -b 1M -e 1G -n 10 --registered 0    on memory that the ranks do not share
  {0} --in-process 8 -b 1M -e 1M --json rows.jsonl    ranks as threads; also writes a JSON line per row
  mpirun -n 4 {0} -b 1M --predict                     compared with the planner's and the simulator's time

Sizes (K, M and G are powers of 1024)
  -b, --minbytes N         default 8
  -e, --maxbytes N         default 64M
  -f, --stepfactor N       factor between sizes; default 2
  -i, --stepbytes N        increment between sizes, instead of a factor
Calls
  -d, --datatype T         u8 i32 i64 f16 f32 bf16 f64, or uint8 int32 int64 half float bfloat16 double;
                           all: each in turn; default f32
)",
      name, to_string(collective));
  if (has_op(collective)) text += "  -o, --op O               sum (default), prod, max, min, avg or all\n";
  if (ddl::topology::has_root(collective))
    text += "  -r, --root N             default 0; all: each in turn\n";
  text += fmt::format(
      R"(  --place in|out|both      in place, out of place; default both
  --registered 0|1         1: memory from ddl::allocate, 0: plain memory; default 1
  --in-process N           N ranks as threads of this process; default: the ranks of mpirun
Measurement
  -n, --iters N            timed iterations; default 20
  -w, --warmup_iters N     iterations before them; default 5
  -m, --agg_iters N        calls in an iteration, back to back; default {0} below {1} KiB, else 1
  --undisturbed PERCENT    repeats an iteration, at most four times, while the hypervisor of a virtual machine
                           takes more than this share of a machine's time; the least disturbed repetition
                           counts. Default 100: never
  -c, --check 0|1          1: checks the results; default 1
Comparison
  --baseline mpi           MPI's collective, on the same buffers (avg: MPI_SUM). Needs a build with MPI
  --baseline gloo          Gloo's, over TCP. Needs a build with libgloo-dev; GLOO_SOCKET_IFNAME names an interface
  --baseline loop          all_reduce: each rank reads and writes the same bytes in a plain loop, without exchange
  --baseline threads       all_reduce in-process: threads read all inputs and write all outputs, each for its
                           share, between two barriers
  --predict                the planner's predicted time and the simulated time of the plan
  --json FILE              appends a JSON line for each row and place

time: the median over iterations of the slowest rank's time of the iteration, divided by the calls in it. All
ranks start an iteration after a barrier, which is not part of its time; there is no barrier between the calls of
an iteration. Iterations of the baseline alternate with the library's, each after a barrier of its own
(MPI_Barrier, Gloo's); ratio is the baseline's time divided by the library's. algbw = size / time; busbw = algbw
times {2}. size is that of {3}. #wrong is the number of wrong elements on all ranks.
DDL_PLAN, DDL_OPTIONS and the other variables apply. The exit status is 1 if a result is wrong, 2 if a flag is.
)",
      batch, batched_below >> 10U,
      collective == Collective::all_reduce                                               ? "2(n-1)/n"
      : collective == Collective::reduce_scatter || collective == Collective::all_gather ? "(n-1)/n"
                                                                                         : "1",
      collective == Collective::reduce_scatter ? "a rank's whole input, count that of its piece"
      : collective == Collective::all_gather   ? "a rank's whole output, count that of a piece"
                                               : "a rank's buffer");
  return text;
}

std::vector<std::size_t> sizes(const Settings& settings) {
  std::vector<std::size_t> result;
  for (std::size_t bytes = settings.smallest; bytes <= settings.largest;) {
    result.push_back(bytes);
    bytes = settings.increment > 0 ? bytes + settings.increment : bytes * settings.factor;
    if (bytes <= result.back()) break;
  }
  return result;
}

int calls_of(const Settings& settings, std::size_t bytes) noexcept {
  if (settings.calls > 0) return settings.calls;
  return bytes < batched_below ? batch : 1;
}

}  // namespace perf
