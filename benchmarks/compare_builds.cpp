// Two builds of the library against each other, in one process. --help says more.

#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "comparable_build.hpp"
#include "perf/number_flags.hpp"
#include "perf/turns.hpp"

namespace {

constexpr std::string_view help = R"(compare_builds: whether a change makes small all-reduces slower or faster

  mpirun -n 2 compare_builds OLD.so NEW.so [--bytes 4096] [--rounds 300] [--calls 4000] [--json FILE]

OLD.so and NEW.so are libcomparable_build.so of two builds of the library (beside this program, in bin/); the same
file twice shows what the machine alone does. Loads both into each process, makes four contexts of each in an
order that is drawn, and times them in turns: that many all-reduces of fp32 in place, back to back, after a barrier.
Rank 0's time a call counts: the median over the rounds. Printed: the median over the contexts of each build, their
difference, and how far contexts of OLD.so differ among each other. One start is not enough: where the system puts
processes and their memory makes a difference of 1% now and then. --json appends a line.
)";

constexpr std::size_t contexts_of_a_kind = 4;

struct Settings {
  std::array<std::string, 2> files;
  std::size_t bytes = 4096;
  std::size_t rounds = 300;
  std::size_t calls = 4000;
  std::string json;
};

Settings parse(const std::vector<std::string_view>& words) {
  Settings settings;
  if (words.size() < 2 || words[0].starts_with("-") || words[1].starts_with("-")) {
    throw std::invalid_argument("expected two files, OLD.so and NEW.so, before any flag; see --help");
  }
  settings.files = {std::string(words[0]), std::string(words[1])};
  perf::parse_number_flags(std::span(words).subspan(2),
                           {{"--bytes", {&settings.bytes, sizeof(float)}},
                            {"--rounds", {&settings.rounds}},
                            {"--calls", {&settings.calls}}},
                           settings.json);
  settings.bytes -= settings.bytes % sizeof(float);
  return settings;
}

/// Loaded until the process ends: threads of its contexts' may still be on their way out.
class Build {
 public:
  explicit Build(const std::string& file) {
    // A name without a slash would be looked for elsewhere.
    void* const library =
        dlopen(file.find('/') == file.npos ? ("./" + file).c_str() : file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(fmt::format("cannot load {}: {}", file, dlerror()));
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) {
        throw std::runtime_error(
            fmt::format("{} has no {}; expected a libcomparable_build.so of this library", file, name));
      }
    };
    find(open, "comparable_open");
    find(time, "comparable_time");
    find(close, "comparable_close");
  }

  decltype(&comparable_open) open = nullptr;
  decltype(&comparable_time) time = nullptr;
  decltype(&comparable_close) close = nullptr;
};

/// Drawn by rank 0.
std::uint64_t common_number() {
  std::uint64_t number = std::random_device()();
  MPI_Bcast(&number, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  return number;
}

void compare(const Settings& settings) {
  const std::array<Build, 2> builds = {Build(settings.files[0]), Build(settings.files[1])};
  std::mt19937_64 random(common_number());
  std::vector<void*> opened;
  std::vector<perf::Contender> contenders;
  for (const std::size_t kind : perf::drawn_kinds(contexts_of_a_kind, random)) {
    void* const context = builds.at(kind).open(settings.bytes);
    if (context == nullptr) throw std::runtime_error("stopped: see above");
    opened.push_back(context);
    contenders.push_back({kind, [context, &build = builds.at(kind), &settings] {
                            const double time = build.time(context, settings.calls);
                            if (time < 0) throw std::runtime_error("stopped: see above");
                            return time;
                          }});
  }
  const perf::TimesByKind times = perf::time_in_turns(contenders, settings.rounds, random);
  for (std::size_t i = opened.size(); i-- > 0;) builds.at(contenders[i].kind).close(opened[i]);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank != 0) return;
  perf::print(times, fmt::format("{} ranks, all_reduce of {} bytes in place", ranks, settings.bytes), "old",
              "new");
  if (settings.json.empty()) return;
  std::ofstream json(settings.json, std::ios::app);
  json << fmt::format(
      "{{\"benchmark\":\"compare_builds\",\"ranks\":{},\"bytes\":{},\"rounds\":{},\"calls\":{},"
      "\"old_ns\":[{:.1f}],\"new_ns\":[{:.1f}]}}\n",
      ranks, settings.bytes, settings.rounds, settings.calls, fmt::join(times[0], ","),
      fmt::join(times[1], ","));
  if (!json.flush()) throw std::runtime_error(fmt::format("--json {}: cannot write", settings.json));
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string_view> words(arguments + 1, arguments + count);
  if (!words.empty() && (words.front() == "--help" || words.front() == "-h")) {
    fmt::print("{}", help);
    return 0;
  }
  try {
    const Settings settings = parse(words);
    MPI_Init(&count, &arguments);
    compare(settings);
    MPI_Finalize();
  } catch (const std::exception& error) {
    fmt::print(stderr, "compare_builds: {}\n", error.what());
    int begun = 0;
    MPI_Initialized(&begun);
    if (begun != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    return 2;
  }
  return 0;
}
