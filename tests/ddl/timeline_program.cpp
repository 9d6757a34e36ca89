// A job for timeline_test.sh, and a check of the trace that it writes.
//   timeline_program run | fail
//   timeline_program check FILE RANKS HOSTS [round_robin] | part FILE RANK

#include <fmt/format.h>

#include <exception>
#include <span>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/timeline.hpp"
#include "support/trace_check.hpp"

namespace {

int run(bool fails) {
  return ddl::Context::run_from_environment([&](ddl::Context& context) {
    std::vector<float> values(1 << 16, 1.0f);
    for (int step = 0; step < 20; ++step) {
      const auto scope = context.timeline().scope("step");
      context.communicator().all_reduce(std::span(values));
      context.communicator().barrier();
      if (fails && step == 10 && context.rank() == 1) {
        throw ddl::Error(ddl::ErrorCode::io, "the disk is on fire");
      }
    }
    return 0;
  });
}

void require(bool is_so, const std::string& what) {
  if (!is_so) throw std::runtime_error(what);
}

void check(const std::string& file, int ranks, int hosts, bool round_robin) {
  const ddl::test::Trace trace(file);
  require(static_cast<int>(trace.ranks().size()) == ranks, "some ranks have no events");
  require(trace.require_one_clock(ranks) >= 40, "calls are missing");
  for (int rank = 0; rank < ranks; ++rank) {
    require(trace.named("step", rank).size() == 20, fmt::format("rank {} has not 20 steps", rank));
    // Ranks of rank 0's host read its clock.
    const int host = round_robin ? rank % hosts : rank * hosts / ranks;
    const bool is_compared = host != 0;
    const double error = trace.clock_error_us(rank);
    require(is_compared == (error > 0), fmt::format("rank {}'s clock is off by up to {} us", rank, error));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.at(0) == "check") {
      check(words.at(1), std::stoi(words.at(2)), std::stoi(words.at(3)), words.back() == "round_robin");
      return 0;
    }
    if (words.at(0) == "part") {
      const ddl::test::Trace trace(words.at(1));
      require(trace.named("step", std::stoi(words.at(2))).size() == 11, "expected 11 steps");
      return 0;
    }
    return run(words.at(0) == "fail");
  } catch (const std::exception& error) {
    fmt::print(stderr, "timeline_program: {}\n", error.what());
    return 1;
  }
}
