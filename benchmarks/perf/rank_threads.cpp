#include "perf/rank_threads.hpp"

#include <cstdio>
#include <vector>

#include "ddl/tools/command_line.hpp"

namespace perf {

int main_of_threads(std::string_view name, std::string_view help, int count, char** arguments,
                    const std::function<RankBody(std::span<const std::string>, RankJob& job)>& prepare) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // so that a program that is killed has printed its results
  return ddl::tools::main_of(name, help, count, arguments, [&](const std::vector<std::string>& words) {
    RankJob job;
    const RankBody body = prepare(words, job);
    std::size_t wrong = 0;
    const auto run = [&](ddl::Context& context) {
      const std::size_t own = body(context);
      if (context.is_root()) wrong = own;
    };
    ddl::run_in_process(job.ranks, run, job.options);
    return wrong == 0 ? 0 : 1;
  });
}

}  // namespace perf
