#include "perf/rank_threads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "ddl/error.hpp"

namespace perf {

int main_of_threads(std::string_view name, std::string_view help, int count, char** arguments,
                    const std::function<RankBody(std::span<const std::string_view>, RankJob& job)>& prepare) {
  constexpr std::size_t most_ranks = 1024;
  const std::vector<std::string_view> words(arguments + (count > 0 ? 1 : 0), arguments + count);
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    fmt::print("{}", help);
    return 0;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a program that is ended has shown what it measured
  try {
    RankJob job;
    const RankBody body = prepare(words, job);
    std::size_t wrong = 0;
    const auto run = [&](ddl::Context& context) {
      const std::size_t own = body(context);
      if (context.is_root()) wrong = own;
    };
    ddl::run_in_process(static_cast<int>(std::min(job.ranks, most_ranks)), run, job.options);
    return wrong == 0 ? 0 : 1;
  } catch (const ddl::Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return error.code() == ddl::ErrorCode::invalid_argument ? 2 : 1;
  }
}

}  // namespace perf
