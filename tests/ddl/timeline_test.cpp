// DDL_TIMELINE, -dump_iter and the summary of a run, in one process. Otherwise users who want to know why
// steps are slow would see events at wrong times, events of some ranks only, or none.

#include "ddl/timeline.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/timeline/run_recorder.hpp"
#include "ddl/context.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/gradients/step_dump.hpp"
#include "ddl/timeline/clocks.hpp"
#include "ddl/timeline/run_summary.hpp"
#include "ddl/timeline/trace.hpp"
#include "support/job_options.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"
#include "support/trace_check.hpp"

namespace ddl {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

InProcessOptions with_timeline(const std::filesystem::path& file) {
  InProcessOptions options = test::on_hosts();
  options.context.timeline = file.string();
  return options;
}

/// Gradients of several buckets.
struct Gradients {
  static constexpr std::size_t count = 6;
  static constexpr std::size_t size = 512;

  explicit Gradients(Context& context)
      : memory(count * size, 1.0f),
        reducer(context, registered(), {.gradients = GradientKind::sum, .bucket_bytes = 4 * size}) {}

  std::vector<Gradient> registered() {
    std::vector<Gradient> result;
    for (std::size_t i = 0; i < count; ++i) {
      result.push_back({fmt::format("g{}", i), std::span(memory).subspan(i * size, size)});
    }
    return result;
  }
  void all_ready() {
    for (std::size_t i = count; i-- > 0;) reducer.ready(i);
  }

  std::vector<float> memory;
  GradientReducer reducer;
};

TEST(Timeline, HoldsAllRanksOnOneClock) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  constexpr int ranks = 4;
  InProcessOptions options = with_timeline(file);
  options.hosts = {"a", "a", "b", "b"};
  run_in_process(
      ranks,
      [](Context& context) {
        EXPECT_TRUE(context.timeline().is_on());
        Gradients gradients(context);
        std::vector<float> large(1 << 18, 1.0f);
        for (int step = 0; step < 5; ++step) {
          const auto whole = context.timeline().scope("step");
          {
            const auto scope = context.timeline().scope("backward");
            gradients.all_ready();
          }
          gradients.reducer.wait(1);
          context.communicator().all_reduce(std::span(large));
          context.communicator().barrier();
        }
      },
      options);
  const test::Trace trace(file.string());
  EXPECT_EQ(trace.ranks(), (std::set<int>{0, 1, 2, 3}));
  EXPECT_GE(trace.require_one_clock(ranks), 5U * 2 + 5 * 2);
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(trace.process(rank), fmt::format("rank {} ({})", rank, rank < 2 ? "a" : "b"));
    EXPECT_EQ(trace.dropped(rank), 0);
    EXPECT_EQ(trace.clock_error_us(rank), 0);
    const std::set<std::string> tracks = trace.tracks(rank);
    for (const char* track : {"trainer", "gradients", "collectives"})
      EXPECT_TRUE(tracks.contains(track)) << track;
    EXPECT_EQ(trace.named("ready: g3", rank).size(), 5U);
    // Nested scopes are nested in time, in one row.
    const auto steps = trace.named("step", rank);
    const auto backwards = trace.named("backward", rank);
    ASSERT_EQ(steps.size(), 5U);
    ASSERT_EQ(backwards.size(), 5U);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].at("tid"), backwards[i].at("tid"));
      EXPECT_LE(steps[i].at("ts").get<double>(), backwards[i].at("ts").get<double>());
      EXPECT_GE(steps[i].at("dur").get<double>(), backwards[i].at("dur").get<double>());
    }
    std::size_t queued = 0;
    bool has_phase = false;
    bool has_plan = false;
    for (const auto& event : trace.events()) {
      if (event.at("pid") != rank) continue;
      if (event.at("name").get<std::string>().starts_with("queue bucket")) {
        ++queued;
        EXPECT_EQ(event.at("args").at("bytes"), 4 * Gradients::size);
      }
      has_phase = has_phase || event.value("cat", "") == "phase";
      if (event.at("name") != "all_reduce" || event.at("args").at("count") != 1 << 18) continue;
      has_plan = has_plan || event.at("args").contains("plan");
      EXPECT_EQ(event.at("args").at("bytes"), 1 << 20);
      EXPECT_EQ(event.at("args").at("type"), "f32");
    }
    EXPECT_EQ(queued, 5 * Gradients::count);
    EXPECT_TRUE(has_phase);
    EXPECT_TRUE(has_plan);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1) << "left-over files";
}

TEST(Timeline, IsOffUnlessAskedFor) {
  InProcessOptions options;
  run_in_process(
      2,
      [](Context& context) {
        EXPECT_FALSE(context.timeline().is_on());
        const auto scope = context.timeline().scope("nothing");
        context.timeline().instant("track", "nothing");
        context.timeline().add("track", "nothing", 1, 2);
        context.communicator().barrier();
      },
      options);
}

TEST(Timeline, OneRankHasOneToo) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path() / "alone.json";
  {
    ContextOptions options;
    options.timeline = file;
    Context context = Context::from_environment(options);
    const auto scope = context.timeline().scope("work");
  }
  EXPECT_EQ(test::Trace(file).named("work", 0).size(), 1U);
}

// Hours of training would end without the trace that was requested.
TEST(Timeline, BadPathIsAnErrorAtTheStart) {
  const test::TemporaryDirectory directory;
  for (const std::filesystem::path& path : {directory.path() / "missing" / "t.json", directory.path()}) {
    bool ran = false;
    const std::string message = test::message_of(ErrorCode::invalid_argument, [&] {
      run_in_process(
          2, [&](Context&) { ran = true; }, with_timeline(path));
    });
    EXPECT_FALSE(ran);
    EXPECT_TRUE(contains(message, fmt::format("DDL_TIMELINE='{}'", path.string()))) << message;
    ContextOptions alone;
    alone.timeline = path.string();
    EXPECT_EQ(test::error_of([&] { Context::from_environment(alone); }).code(), ErrorCode::invalid_argument);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

// A trace would lack events without saying so.
TEST(Timeline, CountsWhatItDrops) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  InProcessOptions options = with_timeline(file);
  options.context.timeline_events = 1000;
  constexpr int events = 5000;
  testing::internal::CaptureStderr();
  run_in_process(
      2,
      [](Context& context) {
        for (int i = 0; i < events; ++i) context.timeline().instant("trainer", "tick", {{"i", i}});
      },
      options);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, "older events of all ranks together were dropped")) << log;
  EXPECT_TRUE(contains(log, "DDL_TIMELINE_EVENTS")) << log;
  const test::Trace trace(file.string());
  for (int rank = 0; rank < 2; ++rank) {
    const auto ticks = trace.named("tick", rank);
    EXPECT_GE(ticks.size(), 1000U);
    EXPECT_LT(ticks.size(), 3000U);
    EXPECT_GE(trace.dropped(rank) + static_cast<std::int64_t>(ticks.size()), events);
    EXPECT_LE(trace.dropped(rank), events);
    EXPECT_EQ(ticks.back().at("args").at("i"), events - 1);
  }
}

// Small calls, which are recorded in groups of the same kind, would be missing.
TEST(Timeline, HoldsEverySmallCall) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  constexpr std::size_t rounds = 300;
  constexpr std::size_t each_round = 9;
  run_in_process(
      2,
      [](Context& context) {
        std::vector<float> some(16), more(24);
        std::vector<double> others(16);
        Communicator& all = context.communicator();
        const std::int64_t begin = Timeline::now_ns();
        for (std::size_t round = 0; round < rounds; ++round) {
          for (int i = 0; i < 6; ++i) all.all_reduce(std::span(some));
          all.all_reduce(std::span(more));
          all.all_reduce(std::span(others));
          all.all_reduce(std::span(others), ReduceOp::max);
        }
        context.timeline().add("trainer", "all", begin, Timeline::now_ns());
      },
      with_timeline(file));
  const test::Trace trace(file.string());
  for (int rank = 0; rank < 2; ++rank) {
    auto calls = trace.named("all_reduce", rank);
    std::erase_if(calls, [](const auto& call) { return call.at("args").contains("compares_plans"); });
    ASSERT_EQ(calls.size(), rounds * each_round);
    std::ranges::sort(calls, {}, [](const auto& call) { return call.at("ts").template get<double>(); });
    const auto all = trace.named("all", rank).front();
    double until = all.at("ts").get<double>();
    constexpr double rounding = 0.002;  // microseconds; the trace has three decimal places
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto& arguments = calls[i].at("args");
      const std::size_t place = i % each_round;
      EXPECT_EQ(arguments.at("bytes"), place < 6 ? 64 : place == 6 ? 96 : 128) << i;
      EXPECT_EQ(arguments.at("type"), place < 7 ? "f32" : "f64") << i;
      EXPECT_EQ(arguments.at("op"), place < 8 ? "sum" : "max") << i;
      if (i > 0) {
        EXPECT_EQ(arguments.at("sequence").get<std::uint64_t>(),
                  calls[i - 1].at("args").at("sequence").get<std::uint64_t>() + 1);
      }
      EXPECT_GE(calls[i].at("ts").get<double>(), until - rounding) << i;
      EXPECT_GT(calls[i].at("dur").get<double>(), 0) << i;
      until = calls[i].at("ts").get<double>() + calls[i].at("dur").get<double>();
    }
    EXPECT_LE(until, all.at("ts").get<double>() + all.at("dur").get<double>() + rounding);
  }
}

// The trace would show kernels at other times than they ran.
TEST(Timeline, TakesWhatWasMeasuredElsewhere) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  run_in_process(
      1,
      [](Context& context) {
        Timeline& timeline = context.timeline();
        const auto scope = timeline.scope("host");
        const std::int64_t begin = Timeline::now_ns();
        while (Timeline::now_ns() < begin + 1'000'000) {
        }
        const std::int64_t end = Timeline::now_ns();
        timeline.add("gpu 0", "kernel \"b\"", begin + 100'000, end, {{"bytes", 4096}, {"stream", -1}});
        timeline.add("gpu 0", "kernel a", begin, end - 100'000);
      },
      with_timeline(file));
  const test::Trace trace(file.string());
  const auto host = trace.named("host", 0).at(0);
  const auto a = trace.named("kernel a", 0).at(0);
  const auto b = trace.named("kernel \"b\"", 0).at(0);
  EXPECT_EQ(b.at("args").at("bytes"), 4096);
  EXPECT_EQ(b.at("args").at("stream"), -1);
  EXPECT_NE(a.at("tid"), b.at("tid")) << "they overlap";
  EXPECT_TRUE(trace.tracks(0).contains("gpu 0"));
  EXPECT_TRUE(trace.tracks(0).contains("gpu 0 (2)"));
  EXPECT_NEAR(b.at("ts").get<double>() - a.at("ts").get<double>(), 100, 0.01);
  constexpr double clocks_agree_us = 5;  // tolerance between the processor's counter and the system's clock
  const double host_begin = host.at("ts");
  EXPECT_GE(a.at("ts").get<double>(), host_begin - clocks_agree_us);
  EXPECT_LE(b.at("ts").get<double>() + b.at("dur").get<double>(),
            host_begin + host.at("dur").get<double>() + clocks_agree_us);
}

// The trace of a failed job, which users need most, would be lost.
TEST(Timeline, EachRankKeepsItsPartOfAFailure) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  const Error error = test::error_of([&] {
    run_in_process(
        3,
        [](Context& context) {
          const auto scope = context.timeline().scope("work");
          context.communicator().barrier();
          if (context.rank() == 1) throw Error(ErrorCode::io, "the disk is on fire");
          context.communicator().barrier();
        },
        with_timeline(file));
  });
  EXPECT_TRUE(contains(error.what(), "the disk is on fire"));
  EXPECT_FALSE(std::filesystem::exists(file));
  for (int rank = 0; rank < 3; ++rank) {
    const test::Trace part(directory.path() / (fmt::format("trace.rank{}.json", rank)));
    EXPECT_EQ(part.named("work", rank).size(), 1U);
    EXPECT_GE(part.named("barrier", rank).size(), 1U);
  }
}

TEST(DumpIter, NamesWhoIsLateAndWhereTheTimeGoes) {
  constexpr int ranks = 3;
  constexpr int steps = 4;
  InProcessOptions options;
  options.context.deadline = std::chrono::seconds(60);
  options.context.dump_iterations = 2;
  std::atomic<int> ready = 0;
  testing::internal::CaptureStderr();
  run_in_process(
      ranks,
      [&](Context& context) {
        Gradients gradients(context);
        for (int step = 0; step < steps; ++step) {
          while (context.rank() == 2 && ready != (ranks - 1) * (step + 1)) std::this_thread::yield();
          gradients.all_ready();
          ++ready;
          gradients.reducer.wait(1);
          context.communicator().barrier();
          if (context.rank() == 2) --ready;  // its own
          context.communicator().barrier();
        }
      },
      options);
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* step : {"step 2: ", "step 4: "}) {
    EXPECT_TRUE(contains(log, std::string(step) + "most delayed rank 2 (")) << log;
    EXPECT_TRUE(contains(log, "last in 12 of 12 reductions")) << log;
  }
  EXPECT_FALSE(contains(log, "step 1: ") || contains(log, "step 3: ")) << log;
  EXPECT_TRUE(contains(log, "dimension 0 (3 members, ")) << log;
  EXPECT_TRUE(contains(log, " a step; all_reduce ")) << log;
  EXPECT_TRUE(contains(log, ": 3 by host, ")) << log;
  EXPECT_FALSE(contains(log, "hash")) << log;  // for people, at -dbg_level 0
}

TEST(Summary, IsLoggedAtTheEndOfARun) {
  InProcessOptions options;
  options.context.deadline = std::chrono::seconds(60);
  options.context.debug_level = 1;
  testing::internal::CaptureStderr();
  run_in_process(
      2,
      [](Context& context) {
        Gradients gradients(context);
        for (int step = 0; step < 3; ++step) {
          gradients.all_ready();
          gradients.reducer.wait(1);
        }
      },
      options);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, "of reducing gradients was hidden behind compute")) << log;
  EXPECT_TRUE(contains(log, "of all collectives was hidden behind compute")) << log;
  EXPECT_TRUE(contains(log, "bytes by link, all ranks together: memory ")) << log;
  EXPECT_TRUE(contains(log, "run: 18 calls took ")) << log;
}

TEST(Summary, SaysWhatTheFiguresSay) {
  RunFigures fast;
  fast.gradients = {.busy = 2, .waited = 0.5};
  fast.all = {.busy = 4, .waited = 4};
  fast.received = {{"memory", 1'000'000}, {"network", 30'000}};
  fast.plans = {{"plan a", 0xabc, 10, 50, 200, 60}, {"plan b", 1, 1, 10, 20, 20}};
  RunFigures slow = fast;
  slow.gradients.waited = 1;
  slow.received = {{"network", 10'000}};
  slow.plans[0].mean_us = 100;
  const std::vector<std::string> lines =
      summary_lines({RunFigures::parse(fast.json()), RunFigures::parse(slow.json())});
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0],
            "run: 62% of 2.00 s of reducing gradients was hidden behind compute (a rank's mean; least: 50%, "
            "rank 1)");
  EXPECT_TRUE(contains(lines[1], "run: 0% of 4.00 s of all collectives")) << lines[1];
  EXPECT_EQ(lines[2], "run: bytes by link, all ranks together: memory 1.000 MB, network 40.00 kB");
  EXPECT_EQ(
      lines[3],
      "run: 10 calls took 60.0 us at least, 1.2 times what was predicted, and 100 us on average with waits "
      "for late ranks: plan a (hash 0000000000000abc)");
  EXPECT_TRUE(contains(lines[4], "plan b")) << lines[4];
}

TEST(Summary, OneCallIsNoPlural) {
  RunFigures one;
  one.plans = {{"plan a", 0xabc, 1, 50, 60, 60}};
  const std::vector<std::string> lines = summary_lines({one});
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(contains(lines.back(), "run: 1 call took")) << lines.back();
}

TEST(Clocks, TheQuickestRoundTripCounts) {
  constexpr std::int64_t ahead = 5'000'000'000;
  const auto trip = [](std::int64_t sent, std::int64_t there, std::int64_t work, std::int64_t back) {
    return RoundTrip{sent, sent + there + ahead, sent + there + work + ahead, sent + there + work + back};
  };
  // A slow message to the other side looks like a clock that is ahead.
  const std::vector<RoundTrip> trips = {trip(100, 90'000, 7, 10'000), trip(200'000, 11'000, 50'000, 9'000),
                                        trip(400'000, 40'000, 3, 40'000)};
  const ClockOffset offset = offset_by(trips);
  EXPECT_EQ(offset.error, 10'000);
  EXPECT_EQ(offset.ahead, ahead + 1'000);
  EXPECT_LE(std::abs(offset.ahead - ahead), offset.error);
  EXPECT_EQ(offset.at, trips[1].came);
}

TEST(Arrivals, TheRankThatHoldsTheOthersUpIsTheMostDelayed) {
  // Rank 1 is last twice by a little, rank 2 once by a lot.
  const std::vector<Arrivals> ranks = {{0, 100, 200, 300}, {50, 140, 210, 300}, {40, 120, 1'200, 300}};
  const MostDelayed found = most_delayed(ranks);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.last_in, 1U);
  EXPECT_EQ(found.collectives, 4U);
  EXPECT_DOUBLE_EQ(found.behind, 990);
  EXPECT_DOUBLE_EQ(found.waited, 1990);
  EXPECT_EQ(most_delayed(std::vector<Arrivals>{{1, 2}, {1, 2}}).last_in, 0U);
  EXPECT_EQ(most_delayed(std::vector<Arrivals>{{1, 2}}).collectives, 0U);
}

TEST(Rows, SlicesThatOverlapGetRowsOfTheirOwn) {
  Rows nesting(true);
  EXPECT_EQ(nesting.row_for(0, 100), 0U);
  EXPECT_EQ(nesting.row_for(10, 20), 0U);
  EXPECT_EQ(nesting.row_for(15, 30), 1U);
  EXPECT_EQ(nesting.row_for(30, 100), 0U);
  Rows side_by_side(false);
  EXPECT_EQ(side_by_side.row_for(0, 100), 0U);
  EXPECT_EQ(side_by_side.row_for(10, 20), 1U);
  EXPECT_EQ(side_by_side.row_for(20, 30), 1U);
  EXPECT_EQ(side_by_side.row_for(100, 130), 0U);
}

TEST(EventRing, KeepsTheNewestWhileItIsRead) {
  constexpr std::size_t most = 4 * collectives::EventRing::block_events;
  constexpr std::uint64_t all = 50'000;
  collectives::EventRing ring(most);
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= all; ++i) ring.add({.begin = i, .end = i});
  });
  const auto check = [&] {
    const collectives::EventRing::Kept kept = ring.kept();
    for (std::size_t i = 0; i < kept.events.size(); ++i) {
      ASSERT_EQ(kept.events[i].begin, kept.dropped + i + 1);
      ASSERT_EQ(kept.events[i].end, kept.events[i].begin);
    }
  };
  for (int i = 0; i < 20; ++i) check();
  writer.join();
  check();
  const collectives::EventRing::Kept kept = ring.kept();
  EXPECT_GE(kept.events.size(), most);
  EXPECT_EQ(kept.events.back().begin, all);
}

}  // namespace
}  // namespace ddl
