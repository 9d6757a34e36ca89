#include "ddl/broadcast_parameters.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

/// Parameters of 5, 0, 3 and 50,000 floats, with a gap in memory before parameter `gap`.
struct Model {
  Model(int rank, std::size_t gap) : memory(50020, -1.0f) {
    std::size_t at = 0;
    for (const std::size_t size : {5, 0, 3, 50000}) {
      if (parameters.size() == gap) at += 4;
      parameters.push_back({fmt::format("p{}", parameters.size()), std::span(memory).subspan(at, size)});
      at += size;
    }
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const auto values = parameters[p].values.as<float>();
      std::iota(values.begin(), values.end(), static_cast<float>(rank * 7 + static_cast<int>(p)));
    }
  }
  std::vector<float> memory;
  std::vector<Parameter> parameters;
};

// Ranks would start from different models and never agree again.
TEST(BroadcastParameters, EveryRankHasTheRootsValues) {
  for (const int ranks : {1, 2, 5, 16}) {
    for (const bool hosts : {false, true}) {
      InProcessOptions options;
      for (int rank = 0; hosts && rank < ranks; ++rank) options.hosts.push_back(rank % 3 == 0 ? "a" : "b");
      run_in_process(
          ranks,
          [&](Context& context) {
            for (const int root : {0, ranks - 1}) {
              // The ranks' gaps are at different places, or there is none.
              Model model(context.rank(), static_cast<std::size_t>(context.rank() % 5));
              const Model expected(root, 9);
              broadcast_parameters(context, model.parameters, root);
              for (std::size_t p = 0; p < expected.parameters.size(); ++p) {
                const auto found = model.parameters[p].values.as<float>();
                const auto wanted = expected.parameters[p].values.as<float>();
                EXPECT_TRUE(std::equal(found.begin(), found.end(), wanted.begin(), wanted.end())) << p;
              }
              EXPECT_EQ(model.memory.back(), -1.0f);
            }
          },
          options);
    }
  }
  run_in_process(3, [](Context& context) { broadcast_parameters(context, {}); });
}

std::string error_on_all(int ranks, ErrorCode code,
                         const std::function<void(int, std::vector<Parameter>&)>& change,
                         const std::function<int(int)>& root) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_in_process(ranks, [&](Context& context) {
    Model model(context.rank(), 9);
    const std::vector<float> before = model.memory;
    change(context.rank(), model.parameters);
    try {
      broadcast_parameters(context, model.parameters, root(context.rank()));
      ADD_FAILURE() << "no error on rank " << context.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_TRUE(error.agreed());
      texts[static_cast<std::size_t>(context.rank())] = error.what();
    }
    EXPECT_EQ(model.memory, before);
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  return texts[0];
}

// A model would be silently overwritten with another one's weights.
TEST(BroadcastParameters, OtherModelsAreNamedBeforeAnythingIsTouched) {
  const auto zero = [](int) { return 0; };
  const auto none = [](int, auto&) {};
  const auto expect = [](const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
  };
  expect(error_on_all(
             4, ErrorCode::mismatch,
             [](int rank, auto& parameters) {
               if (rank % 2 == 1) parameters[2].values = parameters[2].values.first(2);
             },
             zero),
         {"parameter 2", "'p2' of 3 f32 on rank 0", "'p2' of 2 f32 on rank 1", "1, 3"});
  expect(error_on_all(
             3, ErrorCode::mismatch,
             [](int rank, auto& parameters) {
               if (rank == 2) parameters[0].name = "decoder";
             },
             zero),
         {"parameter 0", "'decoder' of 5 f32 on rank 2"});
  expect(error_on_all(
             2, ErrorCode::mismatch,
             [](int rank, auto& parameters) {
               if (rank == 1) parameters.clear();
             },
             zero),
         {"missing (0 in all) on rank 1"});
  expect(error_on_all(2, ErrorCode::mismatch, none, [](int rank) { return rank; }),
         {"root 0", "root 1 on rank 1"});
  expect(error_on_all(2, ErrorCode::invalid_argument, none, [](int) { return 2; }), {"root 2", "2 ranks"});
  expect(error_on_all(2, ErrorCode::invalid_argument, none, [](int) { return -1; }), {"root -1"});
}

// Ranks would start from different models although all of them have called the broadcast.
TEST(BroadcastParameters, WhatDoesNotArriveIsNamed) {
  std::vector<std::string> texts(4);
  run_in_process(4, [&](Context& context) {
    std::vector<float> memory = {1, 2, 3, 4};
    const std::span<float> all(memory);
    // A rank whose parameters share memory cannot hold the root's values in both.
    const bool shares = context.rank() >= 2;
    const std::vector<Parameter> parameters = {
        {"input", all.subspan(shares ? 3 : 2, 1)}, {"tied", all.subspan(3, 1)}, {"output", all.first(2)}};
    const Error error = test::error_of([&] { broadcast_parameters(context, parameters); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_TRUE(error.agreed());
    texts[static_cast<std::size_t>(context.rank())] = error.what();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  for (const char* part : {"broadcast_parameters: parameter 0 is 'input' of 1 f32 with hash", "on rank 2",
                           "(ranks that differ from rank 0 there: 2, 3)", "overlap in memory"}) {
    EXPECT_NE(texts[0].find(part), std::string::npos) << part << " not in: " << texts[0];
  }
}

}  // namespace
}  // namespace ddl
