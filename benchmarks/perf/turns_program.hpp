#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "perf/number_flags.hpp"
#include "perf/turns.hpp"

// What programs share that compare small all-reduces of two kinds in turns, in each process of an MPI job.

namespace perf {

constexpr std::size_t contenders_of_a_kind = 4;

struct TurnsSettings {
  std::size_t bytes = 4096;
  std::size_t rounds = 300;
  std::size_t calls = 4000;
  std::string json;
};

/// Throws `invalid_argument`.
inline TurnsSettings parse_turns(std::span<const std::string_view> flags) {
  TurnsSettings settings;
  parse_number_flags(flags,
                     {{"--bytes", {&settings.bytes, sizeof(float)}},
                      {"--rounds", {&settings.rounds}},
                      {"--calls", {&settings.calls}}},
                     settings.json);
  settings.bytes -= settings.bytes % sizeof(float);
  return settings;
}

/// Of one state on all ranks; from rank 0.
inline std::mt19937_64 common_random() {
  std::uint64_t seed = std::random_device()();
  MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  return std::mt19937_64(seed);
}

/// On rank 0: for people, and as a line of `settings.json`, where the kinds are called `name_ns`.
inline void report(const TimesByKind& times, const TurnsSettings& settings, std::string_view benchmark,
                   const std::array<std::string_view, 2>& kinds,
                   const std::array<std::string_view, 2>& names) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank != 0) return;
  print(times, fmt::format("{} ranks, all_reduce of {} bytes in place", ranks, settings.bytes), kinds[0],
        kinds[1]);
  if (settings.json.empty()) return;
  std::ofstream json(settings.json, std::ios::app);
  json << fmt::format(
      "{{\"benchmark\":\"{}\",\"ranks\":{},\"bytes\":{},\"rounds\":{},\"calls\":{},\"{}_ns\":[{:.1f}],"
      "\"{}_ns\":[{:.1f}]}}\n",
      benchmark, ranks, settings.bytes, settings.rounds, settings.calls, names[0], fmt::join(times[0], ","),
      names[1], fmt::join(times[1], ","));
  if (!json.flush()) throw std::runtime_error(fmt::format("--json {}: cannot write", settings.json));
}

/// A program's main: --help, or `parse` of its words and `run` of what comes of it between MPI's begin and
/// end. What is thrown goes to standard error.
template <class Parse, class Run>
int turns_main(int count, char** arguments, std::string_view name, std::string_view help, const Parse& parse,
               const Run& run) {
  const std::vector<std::string_view> words(arguments + 1, arguments + count);
  if (!words.empty() && (words.front() == "--help" || words.front() == "-h")) {
    fmt::print("{}", help);
    return 0;
  }
  try {
    const auto settings = parse(words);
    MPI_Init(&count, &arguments);
    run(settings);
    MPI_Finalize();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    int begun = 0;
    MPI_Initialized(&begun);
    if (begun != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    return 2;
  }
  return 0;
}

}  // namespace perf
