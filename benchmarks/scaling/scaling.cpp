// scaling: the time of a training step by number of workers, simulated; see --help.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "ddl/error.hpp"
#include "ddl/tools/command_line.hpp"
#include "ddl/tools/plan_report.hpp"
#include "ddl/tools/topo_commands.hpp"
#include "scaling/training_step.hpp"
#include "topology/text.hpp"

namespace {

using ddl::tools::CommandLine;
using ddl::tools::Flag;
using ddl::tools::UsageError;
using ddl::topology::Topology;
using namespace scaling;

constexpr std::string_view help =
    R"(scaling: the time of a training step by number of workers, simulated

  scaling                                  the reference model on 1 to 16 GPUs of four IBM AC922
  scaling --topology dgx_h100:64 --workers 8,64,512 --compute-ms 8.9 --bytes 1G
  scaling --topology ethernet:4x4@1gbit --gradients 200 --bytes 7176680 --modes after,overlap
  scaling --modes overlap --spread 10      workers whose compute times differ
  scaling --json rows.jsonl                also writes the rows as JSON lines; - prints only these

Measured and emulated rows of the same format, tables and pictures: benchmarks/scaling.py.

Options
  --topology NAME|FILE|-  a preset (ddl-topo presets) or a file; default ac922:4
  --carriers LIST         between GPUs, as for ddl-plan; default cuda_ipc,nccl, or what the file says
  --workers N,N,...       default 1,2,4,8,12,16
  --modes MODE,...        how gradients are reduced: "after" backward by one all-reduce, or during it ("overlap") in
                          the buckets that GradientReducer makes; and with '+' behind it one_chunk (no pipelining),
                          rows (only the touched rows of embeddings, where that is faster), bf16 or f16 (between
                          hosts), sharded (reduce-scatter, update of a part, all-gather of parameters). Default
                          after,overlap,overlap+rows
  --gradients G           reference: the article's model, with the times of a measured step (default); a number of
                          equal ones that become ready evenly; or a file of JSON lines with name, elements, ready
                          (share of the step's compute) and, for embeddings, row_width
  --bytes N               all gradients together, scaled to this; K, M and G are powers of 1024
  --buckets N             bytes of a bucket; default: as GradientReducer chooses
  --compute-ms X          of a step on one worker; default 360, the article's
  --update-ms X           the part of it that the optimiser takes; default 2.4: 3 x 718 MB at 900 GB/s
  --words N               source and target words of a worker's step, of which each side looks up half in an
                          embedding, Zipf-distributed; default 2570, the article's
  --spread PERCENT        standard deviation of a worker's compute time; a step waits for the slowest. Default 0
  --seed N                of the spread; default 1
  --json FILE             writes the rows as JSON lines
  -h, --help

Each worker computes as much as a single one, so the speed-up is workers x time of one / time of a step. A bucket is
reduced when its gradients are ready and the bucket before it is reduced. Reductions do not slow compute down. Between
GPUs a collective takes the planner's predicted time, of the plan that a job would log; between CPUs, that of the
simulator. Rows: source, topology, workers, mode, step_ms, words_per_s, speedup, efficiency, hidden (share of the
collectives' time that overlaps with compute), compute_ms, bytes, reduction_ms, bound_ms, plan, plan_hash, buckets
(ms from the step's begin at which each is ready, begins and is reduced).
)";

struct Settings {
  std::string topology = "ac922:4";
  std::optional<ddl::topology::DeviceCarriers> carriers;
  std::vector<int> workers = {1, 2, 4, 8, 12, 16};
  std::vector<Mode> modes = {Mode::parse("after"), Mode::parse("overlap"), Mode::parse("overlap+rows")};
  ModelGradients gradients;
  std::uint64_t bucket_bytes = 0;
  Compute compute{.ms = 360, .update_ms = 2.4, .words = 2570};
  std::string json;
};

struct Row {
  int workers = 0;
  std::string mode;
  double speedup = 0;
  StepTime step;
};

std::string json_of(const Settings& settings, const Row& row) {
  nlohmann::ordered_json json = {{"source", "simulated"},
                                 {"topology", settings.topology},
                                 {"workers", row.workers},
                                 {"mode", row.mode},
                                 {"step_ms", row.step.ms},
                                 {"words_per_s", row.workers * settings.compute.words / row.step.ms * 1e3},
                                 {"speedup", row.speedup},
                                 {"efficiency", row.speedup / row.workers},
                                 {"hidden", row.step.hidden},
                                 {"compute_ms", settings.compute.ms},
                                 {"bytes", bytes_of(settings.gradients)},
                                 {"reduction_ms", row.step.reduction_ms},
                                 {"bound_ms", row.step.bound_ms},
                                 {"plan", ddl::tools::short_name(row.step.plan)},
                                 {"plan_hash", fmt::format("{:016x}", hash(row.step.plan))}};
  for (const BucketTimes& bucket : row.step.buckets)
    json["buckets"].push_back({bucket.ready, bucket.begin, bucket.end});
  return json.dump() + "\n";
}

std::string text_of(const Settings& settings, const std::vector<Row>& rows) {
  ddl::TextTable table({">WORKERS", "MODE", ">STEP ms", ">WORDS/s", ">SPEED-UP", ">EFFICIENCY", ">HIDDEN",
                        ">REDUCTION ms", ">BOUND ms", "PLAN"});
  for (const Row& row : rows) {
    const bool alone = row.workers == 1;
    table.add({std::to_string(row.workers), row.mode, fmt::format("{:.1f}", row.step.ms),
               ddl::digits_text(
                   static_cast<std::uint64_t>(row.workers * settings.compute.words / row.step.ms * 1e3)),
               fmt::format("{:.2f}", row.speedup), fmt::format("{:.0f}%", 100 * row.speedup / row.workers),
               alone ? "-" : fmt::format("{:.0f}%", 100 * row.step.hidden),
               fmt::format("{:.1f}", row.step.reduction_ms), fmt::format("{:.1f}", row.step.bound_ms),
               alone ? "-" : ddl::tools::short_name(row.step.plan)});
  }
  return fmt::format(
      "simulated, not measured: {} of gradients, {:.4g} ms of compute a step, workers placed by host on "
      "{}\n\n{}",
      ddl::format_bytes(static_cast<double>(bytes_of(settings.gradients))), settings.compute.ms,
      settings.topology, table.text());
}

int parse_count(std::string_view flag, const std::string& text, int most) {
  int number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && rest == text.data() + text.size() && number >= 1 && number <= most)
    return number;
  ddl::tools::refuse_usage("{}: found '{}', expected a number from 1 to {}", flag, text, most);
}

ModelGradients parse_gradients(const std::string& name, std::uint64_t bytes) {
  ModelGradients gradients;
  if (name == "reference") {
    gradients = reference_gradients();
  } else if (!name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) {
    const int count = parse_count("--gradients", name, 1'000'000);
    const std::uint64_t all = bytes > 0 ? bytes : bytes_of(reference_gradients());
    if (all / sizeof(float) < static_cast<std::uint64_t>(count))
      ddl::tools::refuse_usage("--bytes: found {}, expected 4 or more a gradient", all);
    return equal_gradients(static_cast<std::size_t>(count), all);
  } else {
    gradients = read_gradients(name);
  }
  if (bytes > 0) resize(gradients, bytes);
  return gradients;
}

Settings parse(std::span<const std::string> arguments) {
  constexpr std::array flags = {
      Flag{"--topology", true}, Flag{"--carriers", true},   Flag{"--workers", true},
      Flag{"--modes", true},    Flag{"--gradients", true},  Flag{"--bytes", true},
      Flag{"--buckets", true},  Flag{"--compute-ms", true}, Flag{"--update-ms", true},
      Flag{"--words", true},    Flag{"--spread", true},     Flag{"--seed", true},
      Flag{"--json", true}};
  const CommandLine line = ddl::tools::parse_flags(arguments, flags);
  Settings settings;
  line.read("--topology", settings.topology);
  if (line.has("--carriers")) {
    settings.carriers = ddl::tools::read_for(
        "--carriers", [&] { return ddl::topology::device_carriers_from(line.value("--carriers")); });
  }
  if (line.has("--workers")) {
    settings.workers.clear();
    for (const std::string& word : parts_of(line.value("--workers"), ','))
      settings.workers.push_back(parse_count("--workers", word, 1 << 20));
  }
  if (line.has("--modes")) {
    settings.modes.clear();
    for (const std::string& word : parts_of(line.value("--modes"), ','))
      settings.modes.push_back(Mode::parse(word));
  }
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 40;
  std::uint64_t bytes = 0;
  line.read("--bytes", bytes, 1, most_bytes);
  settings.gradients = parse_gradients(line.value("--gradients", "reference"), bytes);
  line.read("--buckets", settings.bucket_bytes, 1, most_bytes);
  line.read("--compute-ms", settings.compute.ms, 1e-3, 1e9);
  settings.compute.update_ms = std::min(settings.compute.update_ms, settings.compute.ms);
  line.read("--update-ms", settings.compute.update_ms, 0, settings.compute.ms);
  line.read("--words", settings.compute.words, 1, 1e12);
  line.read("--spread", settings.compute.spread, 0, 100);
  settings.compute.spread /= 100;
  line.read("--seed", settings.compute.seed, 0, UINT64_MAX);
  line.read("--json", settings.json);
  return settings;
}

Topology topology_of(const Settings& settings) {
  const Topology topology = ddl::tools::named_topology(settings.topology, {});
  if (settings.carriers) return topology.with_carriers(*settings.carriers);
  const bool gpus = !topology.devices().empty() &&
                    topology.node(topology.devices()[0]).kind == ddl::topology::NodeKind::gpu;
  return gpus && !topology.carriers() ? topology.with_carriers({.exchange = true, .nccl = true}) : topology;
}

void run(std::span<const std::string> arguments) {
  const Settings settings = parse(arguments);
  const Topology topology = topology_of(settings);
  const auto devices = static_cast<int>(topology.devices().size());
  if (const int most = *std::ranges::max_element(settings.workers); most > devices) {
    throw UsageError(fmt::format("--workers: found {}, expected at most {}, the devices of {}", most, devices,
                                 settings.topology));
  }
  std::vector<Row> rows;
  for (const int workers : settings.workers) {
    TrainingStep step(topology, workers, settings.gradients, settings.bucket_bytes);
    for (const Mode& mode : settings.modes) {
      Row row{workers, mode.name, 0, step.time(mode, settings.compute)};
      row.speedup = workers * settings.compute.ms / row.step.ms;
      rows.push_back(std::move(row));
    }
  }
  std::ranges::stable_sort(rows, {}, [&](const Row& row) {
    return std::ranges::find(settings.modes, row.mode, &Mode::name) - settings.modes.begin();
  });
  std::string lines;
  for (const Row& row : rows) lines += json_of(settings, row);
  if (!settings.json.empty()) ddl::tools::write_text(settings.json, lines);
  if (settings.json != "-") ddl::tools::write_text("-", text_of(settings, rows));
}

}  // namespace

int main(int argc, char** argv) {
  return ddl::tools::main_of("scaling", help, argc, argv, [](const std::vector<std::string>& words) {
    run(words);
    return 0;
  });
}
