// What a timeline adds to a small all-reduce. --help says more.

#include <fmt/format.h>

#include <cstddef>
#include <deque>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>
#include <vector>

#include "perf/timed_all_reduce.hpp"
#include "perf/turns.hpp"
#include "perf/turns_program.hpp"

namespace {

constexpr std::string_view help = R"(timeline_cost: what a timeline adds to a small all-reduce

  mpirun -n 2 timeline_cost [--bytes 4096] [--rounds 300] [--calls 4000] [--json FILE]

Makes eight contexts in each process, of which half, drawn anew each time, have a timeline (in a temporary file,
removed at the end). Each round times that many all-reduces of fp32 in place, back to back, on each context, in an order
drawn anew for each round, after a barrier. Rank 0's time a call is kept: the median over the rounds, which
whatever else the machine does disturbs least. Printed: the median over the contexts without a timeline and over
those with one, their difference, and how far contexts without one differ among each other, which is what such
a figure cannot tell from nothing. --json appends a line.
)";

void measure(const perf::TurnsSettings& settings) {
  ddl::ContextOptions options = ddl::ContextOptions::from_environment();
  std::mt19937_64 random = perf::common_random();
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("timeline_cost.{}.json", random());
  std::deque<perf::TimedAllReduce> contexts;
  std::vector<perf::Contender> contenders;
  for (const std::size_t has_timeline : perf::drawn_kinds(perf::contenders_of_a_kind, random)) {
    options.timeline = has_timeline == 1 ? file.string() : "";
    perf::TimedAllReduce& context = contexts.emplace_back(options, settings.bytes);
    contenders.push_back({has_timeline, [&] { return context.time(settings.calls); }});
  }
  const perf::TimesByKind times = perf::time_in_turns(contenders, settings.rounds, random);
  while (!contexts.empty()) contexts.pop_back();  // each writes its file
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  perf::report(times, settings, "timeline_cost", {"without a timeline", "with one"}, {"without", "with"});
}

}  // namespace

int main(int count, char** arguments) {
  return perf::turns_main(count, arguments, "timeline_cost", help, perf::parse_turns, measure);
}
