#include "perf/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <functional>
#include <limits>

#include "ddl/error.hpp"
#include "ddl/nearest_name.hpp"
#include "ddl/topology/plan.hpp"

namespace perf {

using ddl::DataType;
using ddl::ReduceOp;
using ddl::topology::Collective;

namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 40U;
constexpr std::size_t most_times = 1'000'000;
constexpr std::size_t batched_below = std::size_t{64} << 10U;
constexpr int batch = 20;

constexpr std::array all_ops = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};
constexpr std::array all_types = {DataType::u8,  DataType::i32,  DataType::i64, DataType::f16,
                                  DataType::f32, DataType::bf16, DataType::f64};

struct TypeName {
  std::string_view name;
  DataType type;
};
/// nccl-tests' names.
constexpr std::array<TypeName, 8> nccl_types = {{{"uint8", DataType::u8},
                                                 {"int32", DataType::i32},
                                                 {"int", DataType::i32},
                                                 {"int64", DataType::i64},
                                                 {"half", DataType::f16},
                                                 {"bfloat16", DataType::bf16},
                                                 {"float", DataType::f32},
                                                 {"double", DataType::f64}}};

[[noreturn]] void refuse(std::string_view flag, std::string_view value, std::string_view expected) {
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   fmt::format("{}: found '{}', expected {}; --help says more", flag, value, expected));
}

std::size_t parse_number(std::string_view flag, std::string_view text, std::size_t least, std::size_t most) {
  std::size_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  unsigned shift = 0;
  if (suffix.size() == 1) {
    constexpr std::string_view letters = "KMG";
    const auto letter = static_cast<char>(std::toupper(static_cast<unsigned char>(suffix[0])));
    if (const auto found = letters.find(letter); found != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(found) + 1);
    }
  }
  const bool is_known = suffix.empty() || shift != 0;
  if (error != std::errc{} || !is_known || value > (std::numeric_limits<std::size_t>::max() >> shift) ||
      (value << shift) < least || (value << shift) > most) {
    refuse(flag, text, fmt::format("a number from {} to {}; K, M and G are powers of 1024", least, most));
  }
  return value << shift;
}

int parse_times(std::string_view flag, std::string_view text, std::size_t least,
                std::size_t most = most_times) {
  return static_cast<int>(parse_number(flag, text, least, most));
}

bool parse_switch(std::string_view flag, std::string_view text) {
  if (text != "0" && text != "1") refuse(flag, text, "0 or 1");
  return text == "1";
}

std::vector<ReduceOp> parse_ops(std::string_view flag, std::string_view text) {
  if (text == "all") return {all_ops.begin(), all_ops.end()};
  for (const ReduceOp op : all_ops) {
    if (to_string(op) == text) return {op};
  }
  refuse(flag, text, "sum, prod, max, min, avg or all");
}

std::vector<DataType> parse_types(std::string_view flag, std::string_view text) {
  if (text == "all") return {all_types.begin(), all_types.end()};
  for (const DataType type : all_types) {
    if (to_string(type) == text) return {type};
  }
  for (const TypeName& known : nccl_types) {
    if (known.name == text) return {known.type};
  }
  refuse(flag, text,
         "u8, i32, i64, f16, f32, bf16, f64, all, or nccl-tests' uint8, int32, int64, half, float, bfloat16, "
         "double");
}

BaselineKind parse_baseline(std::string_view flag, std::string_view text) {
  for (const BaselineKind kind : {BaselineKind::none, BaselineKind::mpi, BaselineKind::gloo,
                                  BaselineKind::loop, BaselineKind::threads}) {
    if (to_string(kind) == text) return kind;
  }
  refuse(flag, text, "mpi, gloo, loop, threads or none");
}

using Reader = std::function<void(std::string_view flag, std::string_view value)>;

struct Flag {
  std::string_view letter;  // may be empty
  std::string_view name;
  Reader read;  // null: takes no value
};

std::vector<Flag> flags_of(Settings& settings) {
  Settings& s = settings;
  using Text = std::string_view;
  std::vector<Flag> flags = {
      {"-b", "--minbytes", [&s](Text f, Text v) { s.smallest = parse_number(f, v, 0, most_bytes); }},
      {"-e", "--maxbytes", [&s](Text f, Text v) { s.largest = parse_number(f, v, 0, most_bytes); }},
      {"-f", "--stepfactor", [&s](Text f, Text v) { s.factor = parse_number(f, v, 2, most_times); }},
      {"-i", "--stepbytes", [&s](Text f, Text v) { s.increment = parse_number(f, v, 1, most_bytes); }},
      {"-n", "--iters", [&s](Text f, Text v) { s.iterations = parse_times(f, v, 1); }},
      {"-w", "--warmup_iters", [&s](Text f, Text v) { s.warm_up = parse_times(f, v, 0); }},
      {"-m", "--agg_iters", [&s](Text f, Text v) { s.calls = parse_times(f, v, 1); }},
      {"-c", "--check", [&s](Text f, Text v) { s.check = parse_switch(f, v); }},
      {"-d", "--datatype", [&s](Text f, Text v) { s.types = parse_types(f, v); }},
      {"", "--place",
       [&s](Text f, Text v) {
         if (v != "in" && v != "out" && v != "both") refuse(f, v, "in, out or both");
         s.in_place = v != "out";
         s.out_of_place = v != "in";
       }},
      {"", "--registered", [&s](Text f, Text v) { s.registered = parse_switch(f, v); }},
      {"", "--baseline", [&s](Text f, Text v) { s.baseline = parse_baseline(f, v); }},
      {"", "--json",
       [&s](Text f, Text v) {
         if (v.empty()) refuse(f, v, "the name of a file");
         s.json = v;
       }},
      {"", "--in-process", [&s](Text f, Text v) { s.in_process = parse_times(f, v, 1, 1024); }},
      {"", "--undisturbed",
       [&s](Text f, Text v) { s.disturbance = static_cast<double>(parse_number(f, v, 0, 100)) / 100; }},
      {"", "--predict", nullptr},
      {"-h", "--help", nullptr},
  };
  if (has_op(s.collective)) {
    flags.push_back({"-o", "--op", [&s](Text f, Text v) { s.ops = parse_ops(f, v); }});
  }
  if (ddl::topology::has_root(s.collective)) {
    flags.push_back({"-r", "--root", [&s](Text f, Text v) {
                       s.root = v == "all" ? Settings::all_roots : parse_times(f, v, 0);
                     }});
  }
  return flags;
}

[[noreturn]] void refuse_unknown(std::string_view flag, const std::vector<Flag>& flags) {
  std::vector<std::string_view> names;
  for (const Flag& known : flags) {
    names.push_back(known.name);
    if (!known.letter.empty()) names.push_back(known.letter);
  }
  refuse("flags", flag, fmt::format("a known one, such as {}", ddl::nearest_name(flag, names)));
}

}  // namespace

std::string_view to_string(BaselineKind kind) noexcept {
  switch (kind) {
    case BaselineKind::none:
      return "none";
    case BaselineKind::mpi:
      return "mpi";
    case BaselineKind::gloo:
      return "gloo";
    case BaselineKind::loop:
      return "loop";
    case BaselineKind::threads:
      return "threads";
  }
  return "?";
}

bool has_op(Collective collective) noexcept {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

Settings parse(Collective collective, const std::vector<std::string>& arguments) {
  Settings settings;
  settings.collective = collective;
  const std::vector<Flag> flags = flags_of(settings);
  std::vector<std::string_view> given;
  const auto is_given = [&](std::string_view name) { return std::ranges::find(given, name) != given.end(); };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const std::size_t equals = argument.starts_with("--") ? argument.find('=') : std::string_view::npos;
    const std::string_view name = argument.substr(0, equals);
    const auto flag = std::ranges::find_if(
        flags, [&](const Flag& known) { return name == known.name || name == known.letter; });
    if (name.empty() || flag == flags.end()) refuse_unknown(name, flags);
    if (is_given(flag->name)) refuse(name, argument, "it once; it is given twice");
    given.push_back(flag->name);
    if (!flag->read) {
      if (equals != std::string_view::npos) refuse(name, argument, "no value");
      continue;
    }
    if (equals != std::string_view::npos) {
      flag->read(name, argument.substr(equals + 1));
    } else {
      if (i + 1 == arguments.size()) refuse(name, "nothing", "a value after it");
      flag->read(name, arguments[++i]);
    }
  }
  settings.predict = is_given("--predict");
  if (is_given("--stepfactor") && is_given("--stepbytes")) {
    refuse("-i", std::to_string(settings.increment), "either a factor (-f) or an increment (-i)");
  }
  if (!is_given("--maxbytes")) settings.largest = std::max(settings.largest, settings.smallest);
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

  mpirun -n 2 {0} -b 8 -e 64M -f 2 --baseline mpi     every power of two, beside MPI's {1}
  mpirun -n 4 {0} -b 1M -e 1G -n 10 --registered 0    on memory that the ranks do not share
  {0} --in-process 8 -b 1M -e 1M --json rows.jsonl    ranks as threads; also a JSON line a row
  mpirun -n 4 {0} -b 1M --predict                     beside the planner's and the simulator's time

Sizes (K, M and G are powers of 1024)
  -b, --minbytes N         default 8
  -e, --maxbytes N         default 64M
  -f, --stepfactor N       from one size to the next; default 2
  -i, --stepbytes N        an increment instead
What is run
  -d, --datatype T         u8 i32 i64 f16 f32 bf16 f64, or uint8 int32 int64 half float bfloat16 double;
                           all: each in turn; default f32
)",
      name, to_string(collective));
  if (has_op(collective)) text += "  -o, --op O               sum (default), prod, max, min, avg or all\n";
  if (ddl::topology::has_root(collective))
    text += "  -r, --root N             default 0; all: each in turn\n";
  text += fmt::format(
      R"(  --place in|out|both      in place, out of place; default both
  --registered 0|1         memory from ddl::allocate, or plain memory; default 1
  --in-process N           N ranks as threads of this process; default: as mpirun says
How
  -n, --iters N            timed iterations; default 20
  -w, --warmup_iters N     iterations before them; default 5
  -m, --agg_iters N        calls in an iteration, back to back; default {0} below {1} KiB, else 1
  --undisturbed PERCENT    repeats an iteration, four times at most, while a virtual machine's hypervisor takes
                           more of a machine's time; the least disturbed one counts. Default 100: never
  -c, --check 0|1          compare the result with what it must be; default 1
Beside it
  --baseline mpi           MPI's collective, on the same buffers (avg: MPI_SUM). Needs a build with MPI
  --baseline gloo          Gloo's, over TCP. Needs a build with libgloo-dev; GLOO_SOCKET_IFNAME names an interface
  --baseline loop          all_reduce: each rank reads and writes as many bytes in a plain loop, with no exchange
  --baseline threads       all_reduce in-process: threads that read all inputs and write all outputs, each for
                           its share, between two barriers
  --predict                the time that the planner predicts and that the simulator needs for the plan
  --json FILE              appends a JSON line for each row and place

time: the median over iterations of the slowest rank's time of the iteration, divided by the calls in it. All
ranks start an iteration after a barrier, which is not part of its time; where several calls are back to
back, there is no barrier between them. The baseline's iterations take turns with ours, each after a barrier
of its own (MPI_Barrier, Gloo's); ratio is its time divided by ours. algbw = size / time; busbw = algbw times {2}.
size is that of {3}. #wrong counts elements, over all ranks, that are not what they must be.
What DDL_PLAN, DDL_OPTIONS and the other variables say holds. The exit status is 1 if a result is wrong, 2 if
a flag is.
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
