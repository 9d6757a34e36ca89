#include "perf/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/error.hpp"
#include "ddl/tools/command_line.hpp"
#include "perf/baseline.hpp"
#include "perf/buffers.hpp"
#include "perf/call.hpp"
#include "perf/machine.hpp"
#include "perf/prediction.hpp"
#include "perf/report.hpp"
#include "perf/settings.hpp"
#include "perf/stopwatch.hpp"
#include "perf/test_values.hpp"

namespace perf {

using ddl::ErrorCode;
using ddl::topology::Collective;

namespace {

class Benchmark {
 public:
  Benchmark(ddl::Context& context, const Settings& settings, const std::shared_ptr<ThreadTeam>& team)
      : context_(context),
        settings_(settings),
        baseline_(make_baseline(settings.baseline, context, team)),
        buffers_(context, settings.collective, settings.largest, settings.registered) {
    context.on_all_ranks("--json", [&] {
      if (context.is_root()) report_.emplace(settings, context);
    });
  }

  /// Runs all measurements; returns the number of wrong elements on rank 0.
  std::int64_t run() {
    for (const ddl::DataType type : settings_.types) {
      for (const ddl::ReduceOp op : settings_.ops) {
        for (const int root : roots()) {
          const TestValues values(settings_.collective, type, op, root, context_.rank(), context_.size());
          for (const std::size_t bytes : sizes(settings_)) add_row(bytes, values, type, op, root);
        }
      }
    }
    if (!report_) return 0;
    report_->close();
    return report_->wrong();
  }

 private:
  [[nodiscard]] std::vector<int> roots() const {
    if (!has_root(settings_.collective) || settings_.root != Settings::all_roots) return {settings_.root};
    std::vector<int> all(static_cast<std::size_t>(context_.size()));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  void add_row(std::size_t bytes, const TestValues& values, ddl::DataType type, ddl::ReduceOp op, int root) {
    const Shape shape = shape_of(settings_.collective, bytes, type, context_.size());
    Row row;
    row.bytes = shape.whole * size_of(type);
    row.count = shape.count;
    row.type = type;
    if (has_op(settings_.collective)) row.op = op;
    if (has_root(settings_.collective)) row.root = root;
    row.calls = calls_of(settings_, bytes);
    for (const bool in_place : {false, true}) {
      if (in_place ? !settings_.in_place : !settings_.out_of_place) continue;
      row.places.push_back(measure_call(buffers_.call(shape, type, op, root, in_place), values, row.calls));
    }
    if (!report_) return;
    row.plan = plan_of(context_, settings_.collective, row.bytes, type);
    if (settings_.predict && row.plan) {
      row.prediction = predict(*context_.topology(), *row.plan, row.bytes, root);
    }
    report_->add(row);
  }

  Measured measure_call(const Call& call, const TestValues& values, int calls) {
    Measured result;
    result.in_place = call.in_place;
    ddl::Communicator& communicator = context_.communicator();
    std::vector<Run> runs = {{[&] { communicator.barrier(); }, [&] { perf::run(communicator, call); }}};
    const bool has_baseline = baseline_ && baseline_->can_run(call);
    if (has_baseline) runs.push_back({[&] { baseline_->meet(communicator); }, [&] { baseline_->run(call); }});
    // In place, the results of one call are the inputs of the next; fresh values do not overflow soon.
    values.fill(call, const_cast<std::byte*>(call.input));
    const StolenTime stolen;
    const std::vector<Times> times =
        measure(communicator, runs, {settings_.warm_up, settings_.iterations, calls, settings_.disturbance});
    result.stolen = stolen.share();
    result.ours = times[0];
    if (has_baseline) result.baseline = times[1];
    if (settings_.check) result.wrong = check(call, values);
    return result;
  }

  std::int64_t check(const Call& call, const TestValues& values) {
    values.fill(call, const_cast<std::byte*>(call.input));
    perf::run(context_.communicator(), call);
    std::int64_t wrong = values.count_wrong(call);
    context_.communicator().all_reduce(std::span(&wrong, 1), ddl::ReduceOp::sum);
    return wrong;
  }

  ddl::Context& context_;
  const Settings& settings_;
  std::unique_ptr<Baseline> baseline_;
  Buffers buffers_;
  std::optional<Report> report_;  // on rank 0
};

int run_ranks(ddl::Context& context, const Settings& settings, const std::shared_ptr<ThreadTeam>& team) {
  if (has_root(settings.collective) && settings.root >= context.size()) {
    throw ddl::Error(ErrorCode::invalid_argument,
                     fmt::format("--root: found {}, expected 0 to {} with {} ranks, or all", settings.root,
                                 context.size() - 1, context.size()))
        .as_agreed();
  }
  return Benchmark(context, settings, team).run() == 0 ? 0 : 1;
}

int run_threads(const Settings& settings) {
  int status = 0;
  const auto team = make_thread_team(settings.in_process);
  ddl::InProcessOptions options;
  options.context = ddl::ContextOptions::from_environment();
  ddl::run_in_process(
      settings.in_process,
      [&](ddl::Context& context) {
        const int own = run_ranks(context, settings, team);
        if (context.is_root()) status = own;
      },
      options);
  return status;
}

int run_processes(Collective collective, const std::vector<std::string>& arguments) {
  return ddl::Context::run_from_environment([&](ddl::Context& context) {
    Settings settings;
    context.on_all_ranks("command line", [&] { settings = parse(collective, arguments); });
    return run_ranks(context, settings, nullptr);
  });
}

}  // namespace

int main_of(Collective collective, int count, char** arguments) {
  const std::string name = fmt::format("{}_perf", to_string(collective));
  return ddl::tools::main_of(
      name, help(collective), count, arguments, [&](const std::vector<std::string>& words) {
        // Under mpirun the ranks parse the arguments collectively, so that only one reports an error.
        const bool has_threads = std::ranges::any_of(words, [](const std::string& word) {
          return word == "--in-process" || word.starts_with("--in-process=");
        });
        return has_threads ? run_threads(parse(collective, words)) : run_processes(collective, words);
      });
}

}  // namespace perf
