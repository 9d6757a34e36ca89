// Checkpoints while training goes on: writing in the background, and signals.

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <latch>
#include <thread>

#include "checkpoint_support.hpp"
#include "ddl/checkpoint/background_work.hpp"

namespace ddl::test {
namespace {

struct Weights {
  explicit Weights(float value) : values(1 << 18, value) {}
  CheckpointContents contents(int rank = 0, int ranks = 1) {
    const std::size_t part = values.size() / static_cast<std::size_t>(ranks) * sizeof(float);
    return {
        .groups = {{"model", {.whole = {{"w", DataType::f32, {1 << 18}, bytes_of(values)}}}},
                   {"optimizer",
                    {.slices = {{"m",
                                 DataType::f32,
                                 {1 << 18},
                                 static_cast<std::size_t>(rank) * part / sizeof(float),
                                 bytes_of(values).subspan(static_cast<std::size_t>(rank) * part, part)}}}}},
        .state = "{}"};
  }
  std::vector<float> values;
};

void expect_values(const SavedCheckpoint& saved, float value) {
  Weights found(-1);
  Weights moments(-1);
  saved.restore("model", {.whole = {{"w", DataType::f32, {1 << 18}, bytes_of(found.values)}}});
  saved.restore("optimizer", {.whole = {{"m", DataType::f32, {1 << 18}, bytes_of(moments.values)}}});
  EXPECT_EQ(found.values, Weights(value).values);
  EXPECT_EQ(moments.values, Weights(value).values);
}

// A checkpoint would mix parts of different steps.
TEST_F(CheckpointTest, SnapshotHasTheValuesOfTheMomentOfSaving) {
  for (const bool sharded : {false, true}) {
    on_ranks(4, [&](Context& context) {
      Checkpoint checkpoint(context, root(), {.sharded = sharded, .background = true});
      Weights weights(0);
      for (std::uint64_t step = 1; step <= 5; ++step) {
        std::ranges::fill(weights.values, static_cast<float>(step));
        checkpoint.save(step, weights.contents(context.rank(), context.size()));
        std::ranges::fill(weights.values, -1.0f);
      }
      checkpoint.wait();
      for (std::uint64_t step = 1; step <= 5; ++step)
        expect_values(SavedCheckpoint::open(context, root() / step_name(step)), static_cast<float>(step));
    });
  }
}

// A sharded save would never be completed in a trainer that only polls.
TEST_F(CheckpointTest, PollingCompletesASave) {
  for (const bool sharded : {false, true}) {
    on_ranks(4, [&](Context& context) {
      const fs::path directory = root() / (sharded ? "sharded" : "whole");
      Checkpoint checkpoint(context, directory, {.sharded = sharded, .background = true});
      Weights weights(1);
      checkpoint.save(1, weights.contents(context.rank(), context.size()));
      bool is_there = false;
      while (!is_there) {
        EXPECT_EQ(checkpoint.poll(), CheckpointRequest::none);
        context.root_only("look", [&] { is_there = fs::exists(directory / step_name(1) / manifest_name); });
        std::int64_t seen = is_there ? 1 : 0;
        context.communicator().all_reduce(std::span(&seen, 1));
        is_there = seen > 0;
      }
      expect_values(checkpoint.newest().value(), 1);
    });
  }
}

// A rank would wait forever for the others, or nobody would learn that nothing was saved.
TEST_F(CheckpointTest, FullDiskInTheBackgroundReachesAllRanks) {
  ::rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::rlimit small = before;
  small.rlim_cur = 300000;
  for (const bool sharded : {false, true}) {
    const fs::path directory = root() / (sharded ? "sharded" : "whole");
    on_ranks(4, [&](Context& context) {
      Checkpoint checkpoint(context, directory, {.sharded = sharded, .background = true});
      Weights weights(1);
      checkpoint.save(1, weights.contents(context.rank(), context.size()));
      checkpoint.wait();
      for (const int way : {0, 1, 2}) {
        context.root_only("limit", [&] { ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0); });
        std::ranges::fill(weights.values, 2.0f);
        checkpoint.save(2, weights.contents(context.rank(), context.size()));
        expect_agreed(ErrorCode::io, {"safetensors", "File too large"}, [&] {
          if (way == 0) checkpoint.wait();
          if (way == 1) {
            while (true) checkpoint.poll();
          }
          if (way == 2) checkpoint.save(3, weights.contents(context.rank(), context.size()));
        });
        context.root_only("lift", [&] { ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0); });
        checkpoint.wait();  // the error is thrown only once
        expect_values(checkpoint.newest().value(), 1);
        if (context.is_root()) {
          EXPECT_EQ(names_in(directory), std::vector{step_name(1)});
        }
      }
      checkpoint.save(4, weights.contents(context.rank(), context.size()));
      checkpoint.wait();
      expect_values(checkpoint.newest().value(), 2);
    });
  }
}

// A program that forgets to wait would lose its last checkpoint, or would not end.
TEST_F(CheckpointTest, DestructorFinishesWhatOneRankCan) {
  testing::internal::CaptureStderr();
  for (const bool sharded : {false, true}) {
    const fs::path directory = root() / (sharded ? "sharded" : "whole");
    on_ranks(2, [&](Context& context) {
      Checkpoint checkpoint(context, directory, {.sharded = sharded, .background = true});
      Weights weights(1);
      checkpoint.save(1, weights.contents(context.rank(), context.size()));
    });
  }
  EXPECT_EQ(newest_step(root() / "whole"), 1u);
  EXPECT_EQ(newest_step(root() / "sharded"), 0u);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("step 1 is lost"), std::string::npos);
}

TEST(BackgroundWork, IsDoneInAThreadOrByWhoeverWaits) {
  BackgroundWork work;
  EXPECT_TRUE(work.done());
  work.wait();
  std::latch go(1);
  std::thread::id id;
  work.start(
      [&] {
        go.wait();
        id = std::this_thread::get_id();
      },
      true);
  EXPECT_FALSE(work.done());
  go.count_down();
  work.wait();
  EXPECT_NE(id, std::this_thread::get_id());
  work.start([&] { id = std::this_thread::get_id(); }, false);
  EXPECT_FALSE(work.done());
  work.wait();
  EXPECT_EQ(id, std::this_thread::get_id());
  for (const bool in_thread : {false, true}) {
    work.start([] { throw Error(ErrorCode::io, "full"); }, in_thread);
    expect_error(ErrorCode::io, {"full"}, [&] { work.wait(); });
    EXPECT_TRUE(work.done());
    work.wait();
  }
}

// The work since the last checkpoint would be lost whenever a scheduler takes the machines back.
TEST_F(CheckpointTest, SignalsAreAgreedRequests) {
  on_ranks(3, [&](Context& context) {
    Checkpoint checkpoint(context, root(), {.handle_signals = true});
    const auto raise_on_one = [&](int signal) {
      context.root_only("raise", [&] { ASSERT_EQ(::raise(signal), 0); });
    };
    EXPECT_EQ(checkpoint.poll(), CheckpointRequest::none);
    raise_on_one(SIGUSR1);
    EXPECT_EQ(checkpoint.pending(), CheckpointRequest::save);
    EXPECT_EQ(checkpoint.pending(), CheckpointRequest::save) << "only agreement forgets it";
    EXPECT_EQ(checkpoint.poll(), CheckpointRequest::save);
    EXPECT_EQ(checkpoint.poll(), CheckpointRequest::none);
    raise_on_one(SIGTERM);
    raise_on_one(SIGUSR1);
    EXPECT_EQ(checkpoint.poll(), CheckpointRequest::save_and_end);
    EXPECT_EQ(checkpoint.pending(), CheckpointRequest::none) << "one save answers both";

    // The votes travel in the trainer's all-reduce; a signal between `votes` and `acknowledge` is not lost.
    raise_on_one(SIGUSR1);
    CheckpointVotes sums = checkpoint.votes();
    context.communicator().all_reduce(std::span(sums));
    raise_on_one(SIGTERM);
    EXPECT_EQ(checkpoint.acknowledge(sums), CheckpointRequest::save);
    EXPECT_EQ(checkpoint.poll(), CheckpointRequest::save_and_end);
    EXPECT_EQ(checkpoint.poll(), CheckpointRequest::none);

    // One rank's request applies to all; the votes of processes differ.
    CheckpointVotes own = {};
    if (context.rank() == 1) own[0] = 1;
    context.communicator().all_reduce(std::span(own));
    EXPECT_EQ(checkpoint.acknowledge(own), CheckpointRequest::save);
    context.communicator().barrier();
  });
}

#ifdef __x86_64__
// A user would lose a run to SIGUSR1: math libraries point the stack pointer into the heap.
TEST_F(CheckpointTest, SignalsDoNotWriteToTheInterruptedStack) {
  alone([&](Context& context) {
    Checkpoint checkpoint(context, root(), {.handle_signals = true});
    std::vector<char> memory(1 << 16, 'x');
    const char* const top = memory.data() + memory.size();
    long result = SYS_tgkill;
    asm volatile(
        "mov %%rsp, %%rbx\n\t"
        "mov %[top], %%rsp\n\t"
        "syscall\n\t"
        "mov %%rbx, %%rsp"
        : "+a"(result)
        : "D"(long{getpid()}), "S"(long{gettid()}), "d"(long{SIGUSR1}), [top] "r"(top)
        : "rbx", "rcx", "r11", "memory");
    EXPECT_EQ(result, 0);
    EXPECT_EQ(checkpoint.poll(), CheckpointRequest::save);
    EXPECT_EQ(std::count(memory.begin(), memory.end(), 'x'), std::ssize(memory));
  });
}
#endif

// A program would lose its own signal handlers, or a second Checkpoint its requests.
TEST_F(CheckpointTest, HandlersAreGivenBack) {
  static volatile sig_atomic_t own;
  own = 0;
  struct sigaction mine {};
  mine.sa_handler = [](int) { own = own + 1; };
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGUSR1, &mine, &before), 0);
  alone([&](Context& context) {
    ::raise(SIGUSR1);
    EXPECT_EQ(own, 1);
    {
      Checkpoint first(context, root(), {.handle_signals = true});
      expect_agreed(ErrorCode::invalid_argument, {"second Checkpoint", "handle_signals"},
                    [&] { Checkpoint(context, root(), {.handle_signals = true}); });
      Checkpoint without(context, root() / "other");
      ::raise(SIGUSR1);
      EXPECT_EQ(own, 1);
      EXPECT_EQ(without.poll(), CheckpointRequest::none);
      EXPECT_EQ(first.poll(), CheckpointRequest::save);
    }
    ::raise(SIGUSR1);
    EXPECT_EQ(own, 2);
    Checkpoint again(context, root(), {.handle_signals = true});
    EXPECT_EQ(again.poll(), CheckpointRequest::none) << "signals before it are not its own";
  });
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

// A job with a dead rank would begin a save that cannot end, and lose minutes and the error with the dead
// rank.
TEST_F(CheckpointTest, SigtermAfterAPeersDeathStartsNoSave) {
  std::latch dead(1);
  try {
    on_ranks(3, [&](Context& context) {
      Checkpoint checkpoint(context, root(), {.handle_signals = true});
      context.communicator().barrier();
      if (context.rank() == 2) {
        dead.count_down();
        throw Error(ErrorCode::internal, "a bug");
      }
      dead.wait();
      if (context.is_root()) ::raise(SIGTERM);
      try {
        while (checkpoint.poll() == CheckpointRequest::none) {
        }
        ADD_FAILURE() << "agreed with a dead rank";
      } catch (const Error& error) {
        EXPECT_FALSE(error.agreed()) << error.what();
        throw;
      }
    });
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a bug");
  }
  EXPECT_EQ(names_in(root()), std::vector<std::string>{});
}

}  // namespace
}  // namespace ddl::test
