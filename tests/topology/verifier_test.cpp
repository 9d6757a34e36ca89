#include "ddl/topology/verifier.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "topology/concrete_run.hpp"
#include "topology/program_support.hpp"

namespace ddl::topology {
namespace {

constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();

Schedule all_reduce(std::size_t count, std::vector<Program> ranks) {
  return schedule_of(Collective::all_reduce, count, std::move(ranks));
}

void expect_right(const Schedule& schedule) {
  const Verdict verdict = verify(schedule);
  EXPECT_TRUE(verdict.ok) << verdict.problem;
  EXPECT_EQ(verdict.problem, "");
  EXPECT_EQ(run_concretely(schedule, 1), "") << "the oracle sees it otherwise";
}

/// Expects a report that contains all `words`.
void expect_problem(const Schedule& schedule, const std::vector<std::string>& words) {
  const Verdict verdict = verify(schedule);
  EXPECT_FALSE(verdict.ok);
  for (const std::string& word : words) {
    EXPECT_NE(verdict.problem.find(word), std::string::npos) << word << " is not in: " << verdict.problem;
  }
}

/// Two ranks: rank 0 reduces, finishes and sends the result back.
Schedule to_and_fro() {
  return all_reduce(
      4, {{{receive_reduce(1, 0, 4), finish(0, 4), send(1, 0, 4)}}, {{send(0, 0, 4), receive(0, 0, 4)}}});
}

// Right schedules would be refused, and with them all plans of their kind.
TEST(Verifier, TakesSchedulesThatAreRight) {
  expect_right(to_and_fro());
  for (int ranks = 1; ranks <= 9; ++ranks) {
    SCOPED_TRACE(ranks);
    const auto n = static_cast<std::size_t>(ranks);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n, 3 * n + 1}) {
      expect_right(ring_all_reduce(ranks, count));
    }
    expect_right(one_shot_all_reduce(ranks, 3));
    expect_right(chain_broadcast(ranks, 7, ranks / 2, 3));
  }
}

TEST(Verifier, CountsStepsAndElements) {
  const Verdict verdict = verify(ring_all_reduce(4, 40));
  EXPECT_EQ(verdict.steps, 4U * (6 * 2 + 1));
  EXPECT_EQ(verdict.elements_sent, 2U * 3 * 40);
}

// Schedules would be refused whose ranges are cut differently on sender and receiver, at each hop.
TEST(Verifier, FollowsDataThroughRangesThatAreCutAnew) {
  expect_right(all_reduce(6, {{{send(1, 0, 4), send(1, 4, 6), receive(1, 0, 1), receive(1, 1, 6)}},
                              {{receive(0, 6, 10), receive(0, 10, 12), reduce(6, 9, 0), reduce(9, 12, 3),
                                copy(0, 6, 6), finish(0, 2), finish(2, 6), send(0, 0, 1), send(0, 1, 6)},
                               6}}));
}

TEST(Verifier, TakesABarrierInWhichRanksHearTwice) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(ranks);
    Schedule barrier =
        schedule_of(Collective::barrier, 1, std::vector<Program>(static_cast<std::size_t>(ranks)));
    for (int rank = 0; rank < ranks; ++rank) {
      auto& program = barrier.ranks[static_cast<std::size_t>(rank)];
      program.scratch = 1;
      for (int distance = 1; distance < ranks; distance *= 2) {
        program.steps.push_back(send((rank + distance) % ranks, 0, 1));
        program.steps.push_back(receive((rank + ranks - distance) % ranks, 1, 2));
        program.steps.push_back(reduce(0, 1, 1));
      }
    }
    expect_right(barrier);
    if (ranks > 1) {
      // Without the last round, a rank leaves before all have arrived.
      for (Program& program : barrier.ranks) program.steps.resize(program.steps.size() - 3);
      expect_problem(barrier, {"rank 0, at the end", "none of rank", "hear of each rank"});
      EXPECT_NE(run_concretely(barrier, 1), "");
    }
  }
}

// Hangs.

TEST(Verifier, FindsReceivesBeforeSendsAllAround) {
  expect_problem(
      all_reduce(4, {{{receive_reduce(2, 0, 4), send(1, 0, 4)}},
                     {{receive_reduce(0, 0, 4), send(2, 0, 4)}},
                     {{receive_reduce(1, 0, 4), send(0, 0, 4)}}}),
      {"deadlock", "6 of 6 steps", "waits for step 0", "which uses the same memory", "expected none"});
}

// Schedules would be accepted that work only if the transport buffers messages.
TEST(Verifier, FindsADeadlockThatBuffersWouldHide) {
  const Program program_of_0{{send(1, 0, 4), receive(1, 0, 4)}};
  const Program program_of_1{{send(0, 0, 4), receive(0, 0, 4)}};
  expect_problem(all_reduce(4, {program_of_0, program_of_1}),
                 {"deadlock", "rank 0, step 1 (receive [0, 4) from 1) waits for step 0 (send [0, 4) to 1)",
                  "needs rank 1, step 1"});
}

// Two phases of a pipeline between the same two ranks could deadlock: rank 0 runs the later phase's send
// first, so its stream waits for data that the earlier phase must bring first.
TEST(Verifier, FindsPhasesThatShareAStreamInOppositeOrders) {
  Schedule schedule = all_reduce(
      8, {{{send(1, 4, 8), receive(1, 0, 4), send(1, 0, 4)}},  // earlier phase [4, 8), later [0, 4)
          {{receive(0, 8, 12), copy(4, 8, 8), send(0, 4, 8), receive(0, 8, 12)}, 4}});
  EXPECT_EQ(verify(schedule).problem.find("deadlock"), std::string::npos) << verify(schedule).problem;
  std::swap(schedule.ranks[0].steps[0], schedule.ranks[0].steps[2]);
  std::swap(schedule.ranks[0].steps[0], schedule.ranks[0].steps[1]);
  expect_problem(schedule, {"deadlock", "rank 0, step 1 (send [0, 4) to 1) waits for step 0"});
  EXPECT_EQ(run_concretely(schedule, 1), "deadlock");
}

// A deadlock would be accepted in which the second message of a stream must overtake the first, which waits
// for an effect of the second.
TEST(Verifier, FindsAMessageThatWouldHaveToOvertake) {
  const Program sends_twice{{receive(2, 4, 8), send(1, 4, 8), send(1, 0, 4)}, 4};
  const Program answers_the_second{{receive(0, 4, 8), receive(0, 8, 12), send(2, 8, 12)}, 8};
  const Program passes_on{{receive(1, 4, 8), send(0, 4, 8)}, 4};
  const Schedule schedule = all_reduce(4, {sends_twice, answers_the_second, passes_on});
  expect_problem(schedule, {"deadlock", "before it in the stream"});
  EXPECT_EQ(run_concretely(schedule, 1), "deadlock");
  // In the other order there is no deadlock.
  Schedule other = schedule;
  std::swap(other.ranks[0].steps[1], other.ranks[0].steps[2]);
  std::swap(other.ranks[1].steps[0], other.ranks[1].steps[1]);
  EXPECT_EQ(verify(other).problem.find("deadlock"), std::string::npos) << verify(other).problem;
}

TEST(Verifier, ShortensTheReportOfALongCycle) {
  std::vector<Program> ranks;
  constexpr int n = 200;
  for (int r = 0; r < n; ++r) {
    ranks.push_back({{receive_reduce((r + n - 1) % n, 0, 4), send((r + 1) % n, 0, 4)}});
  }
  const Verdict verdict = verify(all_reduce(4, ranks));
  EXPECT_NE(verdict.problem.find("and so on over 200 waits"), std::string::npos) << verdict.problem;
  EXPECT_LT(verdict.problem.size(), 1500U);
}

// Matching.

TEST(Verifier, FindsSendsAndReceivesWithoutEachOther) {
  Schedule schedule = to_and_fro();
  schedule.ranks[1].steps.push_back(send(0, 2, 3));
  expect_problem(schedule, {"rank 1, step 2 (send [2, 3) to 0)", "never received", "sends 2 times to rank 0",
                            "receives 1 times"});
  schedule = to_and_fro();
  schedule.ranks[1].steps.push_back(receive(0, 0, 4));
  expect_problem(schedule, {"rank 1, step 2 (receive [0, 4) from 0)", "waits for nothing",
                            "receives 2 times from rank 0", "sends 1 times"});
  schedule = to_and_fro();
  schedule.ranks[1].steps[1].end = 3;
  expect_problem(schedule, {"rank 0, step 2 (send [0, 4) to 1)", "found 4 elements sent, expected 3",
                            "rank 1, step 1 (receive [0, 3) from 0)"});
  schedule = to_and_fro();
  schedule.ranks[0].steps.clear();
  expect_problem(schedule, {"rank 1, step 0", "never received", "receives 0 times"});
  schedule.ranks[1].steps.erase(schedule.ranks[1].steps.begin());
  expect_problem(schedule, {"rank 1, step 0", "waits for nothing", "sends 0 times"});
}

// Runs.

TEST(Verifier, RefusesStepsThatCannotBeJoined) {
  const auto joined = [](Step step) {
    step.joined = true;
    return step;
  };
  const Program peer{{send(0, 0, 4)}, 0};
  const auto expect = [&](std::vector<Step> steps, const char* problem) {
    expect_problem(all_reduce(4, {{std::move(steps), 0}, peer, peer}), {"rank 0, step", problem});
  };
  expect({joined(receive_reduce(1, 0, 4))}, "the first step is joined");
  expect({receive_reduce(1, 0, 4), joined(receive(2, 0, 4))}, "a receive is joined");
  expect({receive_reduce(1, 0, 4), joined(send(2, 0, 4))}, "a send is joined");
  expect({receive_reduce(1, 0, 4), joined(receive_reduce(2, 0, 3))},
         "joined to a receive_reduce [0, 4) from 1");
  expect({send(1, 0, 4), joined(receive_reduce(2, 0, 4))}, "joined to a send");
  expect({receive_reduce(1, 0, 4), finish(0, 4), joined(receive_reduce(2, 0, 4))}, "joined to a finish");
  expect({receive_reduce(1, 0, 4), joined(receive_reduce(1, 0, 4))}, "takes from rank 1 twice");
}

// Runs, which read all peers at once, would be accepted although each waits for the other's end and never
// starts.
TEST(Verifier, FindsRunsThatWaitForEachOther) {
  const auto schedule_with = [](bool is_joined) {
    std::vector<Program> ranks(3);
    Step second = receive_reduce(2, 0, 4);
    second.joined = is_joined;
    ranks[0].steps = {receive_reduce(1, 0, 4), second, send(1, 0, 4)};
    // Rank 1 overwrites the data that rank 0 reads first, and sends to rank 2 only then.
    ranks[1].steps = {send(0, 0, 4), copy(0, 4, 4), send(2, 0, 4), receive(0, 4, 8)};
    ranks[1].scratch = 4;
    ranks[2].steps = {receive(1, 4, 8), copy(0, 4, 4), send(0, 0, 4)};
    ranks[2].scratch = 4;
    ranks[1].steps.insert(ranks[1].steps.begin(), copy(4, 8, 0));
    return all_reduce(4, std::move(ranks));
  };
  EXPECT_EQ(verify(schedule_with(false)).problem.find("deadlock"), std::string::npos)
      << verify(schedule_with(false)).problem;
  expect_problem(schedule_with(true), {"deadlock"});
  EXPECT_EQ(run_concretely(schedule_with(true), 1), "deadlock");
}

// 16-bit sums would be accepted that one rank rounds after each operand and another at the end.
TEST(Verifier, FindsRanksThatRoundAtOtherPlaces) {
  Schedule schedule = one_shot_all_reduce(3, 2);
  ASSERT_TRUE(verify(schedule).ok);
  std::vector<Step>& steps = schedule.ranks[1].steps;
  const auto first = std::ranges::find(steps, StepKind::reduce, &Step::kind);
  (first + 1)->joined = true;
  expect_problem(schedule, {"ranks 0 and 1", "combined in another order"});
  for (Program& program : schedule.ranks) {
    (std::ranges::find(program.steps, StepKind::reduce, &Step::kind) + 1)->joined = true;
  }
  EXPECT_TRUE(verify(schedule).ok) << verify(schedule).problem;
}

// Results.

TEST(Verifier, FindsMemoryThatNothingWasWrittenTo) {
  const auto with = [](Program program_of_0) {
    return all_reduce(4, {std::move(program_of_0), {{receive_reduce(0, 0, 4), finish(0, 4)}}});
  };
  const std::vector<std::string> words = {"reads address 6, which nothing was written to"};
  const auto expect = [&](const Schedule& schedule, const char* step) {
    expect_problem(schedule, {step, words[0]});
  };
  expect(with({{copy(4, 6, 0), send(1, 4, 8)}, 4}), "rank 0, step 1");
  expect(with({{copy(4, 6, 0), copy(0, 4, 4), send(1, 0, 4)}, 4}), "rank 0, step 1");
  expect(with({{copy(4, 6, 0), reduce(0, 4, 4), send(1, 0, 4)}, 4}), "rank 0, step 1");
  expect(with({{copy(4, 6, 0), reduce(4, 8, 0), send(1, 4, 8)}, 4}), "rank 0, step 1");
  expect_problem(all_reduce(1, {{{finish(1, 2)}, 1}}),
                 {"rank 0, step 0", "element 0", "nothing that was ever written"});
}

TEST(Verifier, FindsAContributionThatCountsTwice) {
  Schedule schedule = to_and_fro();
  schedule.ranks[0].steps.insert(schedule.ranks[0].steps.begin(), receive_reduce(1, 2, 4));
  schedule.ranks[1].steps.insert(schedule.ranks[1].steps.begin(), send(0, 2, 4));
  expect_problem(schedule, {"rank 0, step 2 (finish [0, 4))", "element 2", "rank 1's contribution 2 times",
                            "comes in again at rank 0, step 1 (receive_reduce [0, 4) from 1)"});
  EXPECT_EQ(run_concretely(schedule, 1), "another sum");
}

TEST(Verifier, FindsAContributionThatIsMissing) {
  Schedule schedule = to_and_fro();
  schedule.ranks.push_back({{receive(1, 0, 4)}});
  schedule.ranks[1].steps.push_back(send(2, 0, 4));
  expect_problem(schedule, {"rank 0, step 1", "element 0", "none of rank 2"});
  for (int i = 0; i < 9; ++i) schedule.ranks.push_back({});
  expect_problem(schedule, {"none of ranks 2, 3, 4, 5, 6 and 5 more"});
}

// A doubled contribution would be accepted in place of a missing one.
TEST(Verifier, FindsOneContributionInPlaceOfAnother) {
  expect_problem(all_reduce(2, {{{receive_reduce(1, 0, 2), receive_reduce(1, 0, 2), finish(0, 2),
                                  send(1, 0, 2), send(2, 0, 2)}},
                                {{send(0, 0, 2), send(0, 0, 2), receive(0, 0, 2)}},
                                {{receive(0, 0, 2)}}}),
                 {"rank 1's contribution 2 times", "none of rank 2"});
}

TEST(Verifier, FindsFinishesThatAreMissingDoubledOrEarly) {
  Schedule schedule = to_and_fro();
  schedule.ranks[0].steps[1] = finish(0, 3);
  expect_problem(schedule, {"rank 0, at the end, element 3", "not finished"});
  schedule = to_and_fro();
  schedule.ranks[0].steps.insert(schedule.ranks[0].steps.begin() + 1, finish(3, 4));
  expect_problem(schedule, {"rank 0, step 2 (finish [0, 4))", "element 3 is finished already"});
  schedule = to_and_fro();
  std::swap(schedule.ranks[0].steps[0], schedule.ranks[0].steps[1]);
  expect_problem(schedule, {"rank 0, step 0 (finish [0, 4))", "none of rank 1"});
  schedule = to_and_fro();
  schedule.ranks[1].steps.push_back(finish(1, 2));
  expect_problem(schedule, {"rank 1, step 2 (finish [1, 2))", "element 1 is finished already"});
  // Each operand finished, then reduced.
  schedule = to_and_fro();
  schedule.ranks[1].steps = {send(0, 0, 4), receive(0, 0, 4), send(0, 0, 4)};
  schedule.ranks[0].steps.push_back(receive_reduce(1, 0, 4));
  expect_problem(schedule, {"rank 0, step 3", "element 0 of the range is finished already"});
}

TEST(Verifier, FindsReductionsOfWhatIsFinished) {
  Schedule schedule = to_and_fro();
  schedule.ranks[1].steps[1] = receive_reduce(0, 0, 4);
  expect_problem(schedule, {"rank 1, step 1", "element 0 that comes in is finished already"});
}

// Ranks could get different bits: a + b and b + a differ for some operations and NaNs.
TEST(Verifier, FindsRanksThatCombineInAnotherOrder) {
  expect_problem(all_reduce(4, {{{send(1, 0, 4), receive(1, 4, 8), reduce(0, 4, 4), finish(0, 4)}, 4},
                                {{send(0, 0, 4), receive(0, 4, 8), reduce(0, 4, 4), finish(0, 4)}, 4}}),
                 {"ranks 0 and 1", "element 0", "another order"});
  // Only the second half of one rank's data.
  const auto halves = [](int peer) {
    return Program{{send(peer, 0, 2), receive(peer, 4, 6), peer == 1 ? reduce(0, 2, 4) : reduce(4, 6, 0),
                    peer == 1 ? copy(4, 6, 0) : copy(0, 2, 4), finish(0, 2), send(peer, 2, 4),
                    receive(peer, 6, 8), reduce(2, 4, 6), finish(2, 4)},
                   4};
  };
  expect_problem(all_reduce(4, {halves(1), halves(0)}), {"ranks 0 and 1", "element 2", "another order"});
}

TEST(Verifier, FindsDataInTheWrongPlace) {
  Schedule schedule = to_and_fro();
  schedule.ranks[0].steps[2] = send(1, 0, 2);
  schedule.ranks[0].steps.push_back(send(1, 2, 4));
  schedule.ranks[1].steps[1] = receive(0, 2, 4);
  schedule.ranks[1].steps.push_back(receive(0, 0, 2));
  expect_problem(schedule, {"rank 1, at the end, element 0", "found element 2, expected element 0"});
  schedule = to_and_fro();
  schedule.ranks[0].steps[0] = receive_reduce(1, 0, 3);
  schedule.ranks[1].steps[0] = send(0, 1, 4);
  expect_problem(schedule, {"rank 0, step 0", "combines element 0 at address 0 with element 1"});
}

TEST(Verifier, FindsABroadcastOfTheWrongData) {
  Schedule schedule = chain_broadcast(3, 6, 1, 2);
  schedule.root = 2;
  expect_problem(schedule, {"rank 0, at the end, element 0", "found rank 1's data, expected rank 2's"});
  schedule = chain_broadcast(3, 6, 1, 2);
  schedule.ranks[2].steps[0].kind = StepKind::receive_reduce;
  expect_problem(schedule, {"rank 2, step 0", "found a reduction, expected none in a broadcast"});
  schedule = chain_broadcast(3, 6, 1, 2);
  schedule.ranks[2].steps.push_back(finish(0, 6));
  expect_problem(schedule, {"rank 2, step 4", "found a finish, expected none in a broadcast"});
  schedule = chain_broadcast(3, 6, 1, 2);
  schedule.ranks[0].steps.resize(1);
  schedule.ranks[2].steps.resize(3);
  expect_problem(schedule, {"rank 0, at the end, element 3", "found rank 0's data, expected rank 1's"});
}

/// Two ranks that exchange pieces of `piece` elements.
Schedule gather_of_two(std::size_t piece) {
  return schedule_of(Collective::all_gather, 2 * piece,
                     {Program{{send(1, 0, piece), receive(1, piece, 2 * piece)}, 0},
                      Program{{send(0, piece, 2 * piece), receive(0, 0, piece)}, 0}});
}

TEST(Verifier, FindsAnAllGatherOfTheWrongPieces) {
  EXPECT_TRUE(verify(gather_of_two(3)));
  Schedule schedule = gather_of_two(3);
  schedule.ranks[0].steps.pop_back();
  schedule.ranks[1].steps.erase(schedule.ranks[1].steps.begin());
  expect_problem(schedule, {"rank 0, at the end, element 3", "found nothing", "expected rank 1's"});
  schedule = gather_of_two(3);
  schedule.ranks[0].steps[0] = send(1, 3, 6);
  expect_problem(schedule, {"rank 0, step 0", "reads address 3", "expected the rank's piece, [0, 3)"});
  schedule = gather_of_two(3);
  schedule.ranks[0].steps.push_back(finish(0, 3));
  expect_problem(schedule, {"found a finish, expected none in an all_gather"});
  schedule = gather_of_two(3);
  schedule.count = 5;
  expect_problem(schedule, {"found 5 elements, expected a multiple of 2"});
}

TEST(Verifier, FindsAReduceScatterWithoutSomeContribution) {
  const auto make = [] {
    return schedule_of(Collective::reduce_scatter, 4,
                       {Program{{send(1, 2, 4), receive_reduce(1, 0, 2), finish(0, 2)}, 0},
                        Program{{send(0, 0, 2), receive_reduce(0, 2, 4), finish(2, 4)}, 0}});
  };
  EXPECT_TRUE(verify(make())) << verify(make()).problem;
  Schedule schedule = make();
  schedule.ranks[1].steps.pop_back();
  expect_problem(schedule, {"rank 1, at the end, element 2", "not finished"});
  schedule = make();
  schedule.ranks[1].steps[1].kind = StepKind::receive;
  expect_problem(schedule, {"rank 1, step 2", "none of rank 1"});
}

TEST(Verifier, FindsAReduceToTheWrongRoot) {
  Schedule schedule =
      schedule_of(Collective::reduce, 2,
                  {Program{{receive_reduce(1, 0, 2), finish(0, 2)}, 0}, Program{{send(0, 0, 2)}, 0}});
  EXPECT_TRUE(verify(schedule)) << verify(schedule).problem;
  schedule.root = 1;
  expect_problem(schedule, {"rank 1, at the end, element 0", "none of rank 0"});
  schedule.root = 2;
  expect_problem(schedule, {"found root 2, expected 0 to 1"});
}

// Bad input.

TEST(Verifier, RefusesSchedulesThatAreNone) {
  expect_problem(all_reduce(4, {}), {"found no ranks"});
  Schedule schedule = to_and_fro();
  schedule.collective = static_cast<Collective>(17);
  expect_problem(schedule, {"collective number 17"});
  for (const int root : {-1, 3, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    schedule = chain_broadcast(3, 6, 1, 2);
    schedule.root = root;
    expect_problem(schedule, {fmt::format("found root {}", root), "expected 0 to 2"});
  }
  schedule = schedule_of(Collective::barrier, 0, std::vector<Program>(2));
  expect_problem(schedule, {"barrier over 0 elements"});
  schedule = to_and_fro();
  schedule.ranks[1].scratch = huge;
  expect_problem(schedule, {"rank 1", "of scratch", "at most"});
}

TEST(Verifier, RefusesStepsThatAreNone) {
  const auto expect = [](const Step& step, const std::vector<std::string>& words) {
    Schedule schedule = to_and_fro();
    schedule.ranks[1].steps.insert(schedule.ranks[1].steps.begin() + 1, step);
    SCOPED_TRACE(to_string(step));
    expect_problem(schedule, {"rank 1, step 1"});
    expect_problem(schedule, words);
  };
  for (const int peer : {-1, -2147483647 - 1, 1, 2, 2147483647}) {
    expect(send(peer, 0, 4), {fmt::format("found peer {}", peer), "expected another rank of 0 to 1"});
    expect(receive(peer, 0, 4), {fmt::format("found peer {}", peer)});
  }
  expect(send(0, 2, 2), {"found begin 2 and end 2"});
  expect(send(0, 4, 0), {"found begin 4 and end 0"});
  expect(finish(huge, 3), {"expected begin below end"});
  expect(finish(3, huge), {"addresses up to 18446744073709551615, expected at most 4"});
  expect(receive(0, 4, 5), {"addresses up to 5, expected at most 4 (4 of the buffer, 0 of scratch)"});
  expect(copy(0, 2, 3), {"source of 2 addresses from 3 on"});
  expect(copy(0, 2, huge), {"source of 2 addresses from 18446744073709551615 on"});
  expect(reduce(0, 2, huge - 1), {"source of 2 addresses"});
  expect(reduce(0, 2, 1), {"overlaps"});
  expect(copy(1, 3, 1), {"overlaps"});
  Step step = finish(0, 4);
  step.kind = static_cast<StepKind>(200);
  expect(step, {"kind number 200"});
}

// A range over both the caller's buffer and the engine's scratch memory would run past the end of the buffer.
TEST(Verifier, RefusesRangesOverTheEndOfTheBuffer) {
  const auto expect = [](const Step& step) {
    Schedule schedule = to_and_fro();
    schedule.ranks[1].scratch = 4;
    schedule.ranks[1].steps.push_back(copy(4, 8, 0));
    schedule.ranks[1].steps.push_back(step);
    expect_problem(schedule, {"rank 1, step 3", "[3, 5) across the end of the buffer at 4"});
  };
  expect(copy(0, 2, 3));
  expect(copy(3, 5, 6));
  expect(send(0, 3, 5));
  expect(receive(0, 3, 5));
  expect(finish(3, 5));
}

// Schedules would be refused for phases, chunks and unused fields, which only reports use.
TEST(Verifier, LooksAtNothingThatDecidesNothing) {
  Schedule schedule = ring_all_reduce(3, 9);
  for (Program& program : schedule.ranks) {
    for (Step& step : program.steps) {
      step.phase = 255;
      step.chunk = 255;
      if (step.kind == StepKind::finish) step.peer = -77;
      step.source = huge;
    }
  }
  EXPECT_TRUE(verify(schedule)) << verify(schedule).problem;
}

// Verification would take time in proportion to the buffer's size.
TEST(Verifier, TakesHugeBuffers) {
  const std::size_t count = huge / 4;
  EXPECT_TRUE(verify(ring_all_reduce(3, count / 3))) << verify(ring_all_reduce(3, count / 3)).problem;
  EXPECT_TRUE(verify(one_shot_all_reduce(2, count / 2)));
}

TEST(Verifier, NeverThrowsAndNeverPassesNonsense) {
  std::mt19937_64 random(1);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::vector<std::size_t> nasty = {0, 1, 2, 3, 4, 5, 8, huge, huge - 1, huge / 2, huge / 2 + 1};
  int passed = 0;
  constexpr int trials = 20000;
  for (int trial = 0; trial < trials; ++trial) {
    const bool mild = trial % 2 == 0;
    const auto address = [&] { return mild ? below(5) : nasty[below(nasty.size())]; };
    Schedule schedule = schedule_of(static_cast<Collective>(below(mild ? 6 : 7)), mild ? 2 : address(), {},
                                    static_cast<int>(below(3)) - (mild ? 0 : 1));
    for (std::size_t ranks = below(4) + (mild ? 1 : 0); ranks > 0; --ranks) {
      Program& program = schedule.ranks.emplace_back();
      program.scratch = mild ? 2 : address();
      for (std::size_t steps = below(4); steps > 0; --steps) {
        Step& step = program.steps.emplace_back();
        step.kind = static_cast<StepKind>(below(mild ? 6 : 7));
        step.peer = static_cast<int>(below(3)) - (mild ? 0 : 1);
        step.begin = address();
        step.end = mild ? step.begin + 1 + below(2) : address();
        step.source = address();
      }
    }
    Verdict verdict;
    ASSERT_NO_THROW(verdict = verify(schedule));
    ASSERT_EQ(verdict.ok, verdict.problem.empty());
    const bool small = std::ranges::all_of(
        schedule.ranks, [&](const Program& program) { return program.scratch < 100 - schedule.count; });
    if (!verdict.ok || schedule.count > 100 || !small) continue;
    ++passed;
    ASSERT_EQ(run_concretely(schedule, random()), "") << "trial " << trial;
  }
  EXPECT_GT(passed, 0);
  EXPECT_LT(passed, trials / 4);
}

}  // namespace
}  // namespace ddl::topology
