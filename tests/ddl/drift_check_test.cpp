#include "ddl/drift_check.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using test::expect_parts;

/// Parameters of 1000, 0 and 37 floats, the same on all ranks.
struct Model {
  Model() : memory(1037) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i) / 7 - 60;
    const std::span<float> all(memory);
    parameters = {{"kernel", all.first(1000)}, {"nothing", all.first(0)}, {"bias", all.subspan(1000)}};
  }
  std::vector<float> memory;
  std::vector<Parameter> parameters;
};

void flip(float& value, unsigned bit) {
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << bit));
}

/// The error message of all ranks; empty if there is none.
std::string drift_of(int ranks, const std::function<void(int, Model&)>& change) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_in_process(ranks, [&](Context& context) {
    Model model;
    change(context.rank(), model);
    try {
      check_same_parameters(context, model.parameters);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_TRUE(error.agreed());
      texts[static_cast<std::size_t>(context.rank())] = error.what();
    }
    context.communicator().barrier();  // the job remains usable
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  return texts[0];
}

// A correct run would end with an error.
TEST(DriftCheck, EqualModelsPass) {
  for (const int ranks : {1, 2, 5}) EXPECT_EQ(drift_of(ranks, [](int, Model&) {}), "");
  EXPECT_EQ(drift_of(3, [](int, Model& model) { model.parameters.clear(); }), "");
  EXPECT_EQ(drift_of(3,
                     [](int, Model& model) {
                       model.memory[3] = std::numeric_limits<float>::quiet_NaN();
                       model.memory[4] = std::numeric_limits<float>::infinity();
                     }),
            "");
}

// Ranks would train different models for days, and nobody would know since when, or which parameter differs.
TEST(DriftCheck, AFlippedBitIsFoundAndNamed) {
  for (const int victim : {0, 2}) {
    for (const unsigned bit : {0U, 22U, 31U}) {
      const std::string text = drift_of(4, [&](int rank, Model& model) {
        if (rank == victim) flip(model.memory[1036], bit);
      });
      expect_parts(text, {"parameter 2 is 'bias' of 37 f32 with hash", "drifted apart",
                          victim == 2 ? "(ranks that differ from rank 0 there: 2)"
                                      : "(ranks that differ from rank 0 there: 1, 2, 3)"});
    }
  }
}

// Values that compare equal (zeros) or never do (NaNs) would hide a difference, or show one that is none.
TEST(DriftCheck, ComparesBits) {
  const auto with = [](float first, float other) {
    return drift_of(3, [&](int rank, Model& model) { model.memory[7] = rank == 1 ? other : first; });
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float other_nan = nan;
  flip(other_nan, 3);
  EXPECT_EQ(with(nan, nan), "");
  expect_parts(with(0.0F, -0.0F), {"'kernel'", "there: 1)"});
  expect_parts(with(nan, other_nan), {"'kernel'", "there: 1)"});
}

// Parameters in another order would pass as equal, or the job would hang.
TEST(DriftCheck, OtherNamesSizesOrNumbersAreNamed) {
  expect_parts(drift_of(3,
                        [](int rank, Model& model) {
                          if (rank == 2) std::swap(model.parameters[0].name, model.parameters[2].name);
                        }),
               {"parameter 0 is 'kernel'", "'bias' of 1000 f32"});
  expect_parts(drift_of(3,
                        [](int rank, Model& model) {
                          if (rank != 0) model.parameters.pop_back();
                        }),
               {"parameter 2 is 'bias'", "missing (2 in all) on rank 1", "there: 1, 2)"});
}

// Every step would be checked, or none.
TEST(DriftCheck, ChecksAtEveryKthStep) {
  run_in_process(2, [](Context& context) {
    Model model;
    DriftCheck check(context, model.parameters, 5);
    DriftCheck never(context, model.parameters, 0);
    if (context.rank() == 1) model.memory[0] += 1;
    for (std::uint64_t step = 1; step < 20; ++step) {
      EXPECT_FALSE(never.is_due(step));
      EXPECT_FALSE(never.step(step));
      EXPECT_EQ(check.is_due(step), step % 5 == 0);
      if (check.is_due(step)) {
        EXPECT_EQ(test::error_of([&] { check.step(step); }).code(), ErrorCode::mismatch);
      } else {
        EXPECT_FALSE(check.step(step));
      }
    }
    if (context.rank() == 1) model.memory[0] -= 1;
    EXPECT_TRUE(check.step(20));
  });
}

// Some ranks would wait in a check that others do not make.
TEST(DriftCheck, RanksMustWantTheSame) {
  run_in_process(3, [](Context& context) {
    Model model;
    const auto every = static_cast<std::uint64_t>(context.rank() == 1 ? 7 : 5);
    const std::string text =
        test::message_of(ErrorCode::mismatch, [&] { DriftCheck(context, model.parameters, every); });
    expect_parts(text, {"DriftCheck", "every 5 steps on rank 0", "every 7 steps on rank 1"});
    if (context.rank() == 2) model.parameters[0].values = model.parameters[0].values.first(3);
    EXPECT_EQ(test::error_of([&] { DriftCheck(context, model.parameters, 5); }).code(), ErrorCode::mismatch);
  });
}

}  // namespace
}  // namespace ddl
