// Two builds of the library against each other, in one process. --help says more.

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comparable_build.hpp"
#include "perf/turns.hpp"
#include "perf/turns_program.hpp"

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

struct Settings {
  std::array<std::string, 2> files;
  perf::TurnsSettings turns;
};

Settings parse(std::span<const std::string_view> words) {
  if (words.size() < 2 || words[0].starts_with("-") || words[1].starts_with("-")) {
    throw std::invalid_argument("expected two files, OLD.so and NEW.so, before any flag; see --help");
  }
  return {{std::string(words[0]), std::string(words[1])}, perf::parse_turns(words.subspan(2))};
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

void compare(const Settings& settings) {
  const std::array<Build, 2> builds = {Build(settings.files[0]), Build(settings.files[1])};
  std::mt19937_64 random = perf::common_random();
  std::vector<void*> opened;
  std::vector<perf::Contender> contenders;
  for (const std::size_t kind : perf::drawn_kinds(perf::contenders_of_a_kind, random)) {
    const Build& build = builds.at(kind);
    void* const context = build.open(settings.turns.bytes);
    if (context == nullptr) throw std::runtime_error("stopped: see above");
    opened.push_back(context);
    contenders.push_back({kind, [context, &build, &settings] {
                            const double time = build.time(context, settings.turns.calls);
                            if (time < 0) throw std::runtime_error("stopped: see above");
                            return time;
                          }});
  }
  const perf::TimesByKind times = perf::time_in_turns(contenders, settings.turns.rounds, random);
  for (std::size_t i = opened.size(); i-- > 0;) builds.at(contenders[i].kind).close(opened[i]);
  perf::report(times, settings.turns, "compare_builds", {"old", "new"}, {"old", "new"});
}

}  // namespace

int main(int count, char** arguments) {
  return perf::turns_main(count, arguments, "compare_builds", help, parse, compare);
}
