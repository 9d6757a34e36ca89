// What a timeline adds to a small all-reduce. --help says more.

#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/ddl.hpp"
#include "perf/number_flags.hpp"
#include "perf/turns.hpp"

namespace {

constexpr std::string_view help = R"(timeline_cost: what a timeline adds to a small all-reduce

  mpirun -n 2 timeline_cost [--bytes 4096] [--rounds 200] [--calls 4000] [--json FILE]

Makes eight contexts in each process, of which half, drawn anew each time, have a timeline (in a temporary file,
removed at the end). Each round times that many all-reduces of fp32 in place, back to back, on each context, in an order
drawn anew for each round, after a barrier. Rank 0's time a call is kept: the median over the rounds, which
whatever else the machine does disturbs least. Printed: the median over the contexts without a timeline and over
those with one, their difference, and how far contexts without one differ among each other, which is what such
a figure cannot tell from nothing. --json appends a line.
)";

constexpr std::size_t contexts_of_a_kind = 4;

struct Settings {
  std::size_t bytes = 4096;
  std::size_t rounds = 200;
  std::size_t calls = 4000;
  std::string json;
};

Settings parse(std::span<const std::string_view> arguments) {
  Settings settings;
  perf::parse_number_flags(arguments,
                           {{"--bytes", {&settings.bytes, sizeof(float)}},
                            {"--rounds", {&settings.rounds}},
                            {"--calls", {&settings.calls}}},
                           settings.json);
  settings.bytes -= settings.bytes % sizeof(float);
  return settings;
}

struct Candidate {
  Candidate(const Settings& settings, const ddl::ContextOptions& options)
      : context(ddl::Context::from_environment(options)),
        values(ddl::allocate<float>(context, settings.bytes / sizeof(float))) {}

  double time_round(const Settings& settings) {
    context.communicator().barrier();
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < settings.calls; ++i) context.communicator().all_reduce(values.span());
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    return spent.count() / static_cast<double>(settings.calls);
  }

  ddl::Context context;
  ddl::SharedBuffer<float> values;
};

/// Drawn by rank 0.
std::uint64_t common_number() {
  std::uint64_t number = std::random_device()();
  MPI_Bcast(&number, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  return number;
}

void measure(const Settings& settings) {
  ddl::ContextOptions options = ddl::ContextOptions::from_environment();
  options.timeline.clear();
  std::mt19937_64 random(common_number());
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("timeline_cost.{}.json", random());
  std::deque<Candidate> candidates;
  std::vector<perf::Contender> contenders;
  for (const std::size_t has_timeline : perf::drawn_kinds(contexts_of_a_kind, random)) {
    options.timeline = has_timeline == 1 ? file.string() : "";
    Candidate& candidate = candidates.emplace_back(settings, options);
    contenders.push_back({has_timeline, [&] { return candidate.time_round(settings); }});
  }
  const perf::TimesByKind times = perf::time_in_turns(contenders, settings.rounds, random);
  const bool is_root = candidates.front().context.is_root();
  const int ranks = candidates.front().context.size();
  while (!candidates.empty()) candidates.pop_back();  // each writes its file
  if (!is_root) return;
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  perf::print(times, fmt::format("{} ranks, all_reduce of {} bytes in place", ranks, settings.bytes),
              "without a timeline", "with one");
  if (settings.json.empty()) return;
  std::ofstream json(settings.json, std::ios::app);
  json << fmt::format(
      "{{\"benchmark\":\"timeline_cost\",\"ranks\":{},\"bytes\":{},\"rounds\":{},\"calls\":{},\"without_ns\":"
      "[{:.1f}],"
      "\"with_ns\":[{:.1f}]}}\n",
      ranks, settings.bytes, settings.rounds, settings.calls, fmt::join(times[0], ","),
      fmt::join(times[1], ","));
  if (!json.flush()) {
    throw ddl::Error(ddl::ErrorCode::io, fmt::format("--json {}: cannot write", settings.json));
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string_view> flags(arguments + 1, arguments + count);
  if (!flags.empty() && (flags.front() == "--help" || flags.front() == "-h")) {
    fmt::print("{}", help);
    return 0;
  }
  try {
    const Settings settings = parse(flags);
    MPI_Init(&count, &arguments);
    measure(settings);
    MPI_Finalize();
  } catch (const ddl::Error& error) {
    fmt::print(stderr, "timeline_cost: {}\n", error.what());
    int begun = 0;
    MPI_Initialized(&begun);
    if (begun != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    return 2;
  }
  return 0;
}
