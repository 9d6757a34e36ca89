#include "ddl/topology/plan.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "ddl/error.hpp"
#include "support/thrown_error.hpp"

namespace ddl::topology {
namespace {

Plan hierarchy() {
  Plan plan;
  plan.bytes = 717'668'352;
  plan.decomposition = Decomposition({2}, {3});
  plan.dimensions = {{Algorithm::ring, Carrier::shared_memory}, {Algorithm::two_shot, Carrier::network}};
  plan.order = {0, 3, 1, 4, 2, 5};
  plan.order_name = "by host";
  plan.chunks = 16;
  plan.predicted_us = 88'200.125;
  plan.phase_us = {1.5, 2.25, 2.0 / 3, 1e-3};
  plan.bound_us = 86'120.20224;
  plan.topology_hash = 0xfedcba9876543210;
  plan.notes = {"a note with \"quotes\" and \n a line"};
  return plan;
}

Plan ragged() {
  Plan plan;
  plan.collective = Collective::broadcast;
  plan.bytes = std::numeric_limits<std::uint64_t>::max();
  plan.type = DataType::i64;
  plan.mode = Mode::scatter_gather;
  plan.decomposition = Decomposition({4, 3, 2, 1}, {2, 2});
  plan.dimensions = {{Algorithm::tree, Carrier::cuda_ipc},
                     {Algorithm::double_tree, Carrier::mpi},
                     {Algorithm::one_shot, Carrier::nccl}};
  plan.order = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  plan.further_orders = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 0}};
  return plan;
}

using test::expect_error;
using test::message_of;

// A saved plan would be loaded as another one, which has not been verified.
TEST(Plan, JsonRoundTrips) {
  for (const Plan& plan : {Plan{}, hierarchy(), ragged()}) {
    const std::string text = to_json(plan);
    EXPECT_EQ(plan_from_json(text, "test"), plan) << text;
    EXPECT_EQ(to_json(plan_from_json(text, "test")), text);
  }
}

// Ranks with equal plans would refuse to start, or ranks with different plans would not notice.
TEST(Plan, HashTellsWhatDecidesTheSteps) {
  const Plan plan = hierarchy();
  std::set<std::uint64_t> hashes = {hash(plan)};
  const auto expect_new = [&](auto change) {
    Plan other = plan;
    change(other);
    EXPECT_TRUE(hashes.insert(hash(other)).second) << to_json(other);
  };
  expect_new([](Plan& p) { p.collective = Collective::broadcast; });
  expect_new([](Plan& p) { p.decomposition = Decomposition({3}, {2}); });
  expect_new([](Plan& p) { p.dimensions[1].algorithm = Algorithm::tree; });
  expect_new([](Plan& p) { p.dimensions[1].carrier = Carrier::mpi; });
  expect_new([](Plan& p) { std::swap(p.order[0], p.order[1]); });
  expect_new([](Plan& p) { p.chunks = 8; });
  expect_new([](Plan& p) { p.further_orders = {p.order}; });
  expect_new([](Plan& p) { p.further_orders = {p.order, p.order}; });
  expect_new([](Plan& p) { p.further_orders = {{0, 1, 2, 3, 4, 5}}; });

  Plan same = plan;
  same.bytes = 1;
  same.type = DataType::f64;
  same.mode = Mode::rings;
  same.order_name = "else";
  same.predicted_us = 0;
  same.phase_us.clear();
  same.bound_us = 1;
  same.topology_hash = 0;
  same.notes.clear();
  EXPECT_EQ(hash(same), hash(plan));
  EXPECT_EQ(hash(Plan{}), 15801676671954491214U) << "the hash has changed: saved plans no longer match";
}

TEST(Plan, WhatDoesNotFitTogetherIsRefused) {
  const auto refused = [](auto change) {
    Plan plan = hierarchy();
    change(plan);
    return message_of(ErrorCode::invalid_argument, [&] { require_valid(plan); });
  };
  const auto refuses_wire = [](const std::vector<std::string>& parts, const auto& change) {
    Plan plan = hierarchy();
    plan.dimensions[1].wire = DataType::bf16;
    EXPECT_NO_THROW(require_valid(plan));
    change(plan);
    expect_error(ErrorCode::invalid_argument, parts, [&] { require_valid(plan); });
  };
  refuses_wire({"dimensions[1]", "wire i32", "bf16 or f16"},
               [](Plan& plan) { plan.dimensions[1].wire = DataType::i32; });
  refuses_wire({"expected none", "f64 all_reduce"}, [](Plan& plan) { plan.type = DataType::f64; });
  refuses_wire({"dimensions[0]", "shared_memory", "one another's memory"},
               [](Plan& plan) { plan.dimensions[0].wire = DataType::bf16; });
  refuses_wire({"dimensions[1]", "expected f16 as in"}, [](Plan& plan) {
    plan.dimensions[0] = {Algorithm::ring, Carrier::network, DataType::f16};
  });
  EXPECT_NO_THROW(require_valid(hierarchy()));
  EXPECT_NO_THROW(require_valid(ragged()));
  EXPECT_NE(refused([](Plan& p) { p.collective = Collective::barrier; }).find("barrier"), std::string::npos);
  EXPECT_NE(refused([](Plan& p) { p.dimensions.pop_back(); }).find("expected 2"), std::string::npos);
  EXPECT_NE(
      refused([](Plan& p) { p.dimensions[0].algorithm = Algorithm::double_tree; }).find("dimensions[0]"),
      std::string::npos);
  EXPECT_NE(refused([](Plan& p) { p.dimensions[1].algorithm = static_cast<Algorithm>(77); }).find("77"),
            std::string::npos);
  EXPECT_NE(refused([](Plan& p) { p.chunks = 65; }).find("1 to 64"), std::string::npos);
  EXPECT_NE(refused([](Plan& p) { p.chunks = 0; }).find("1 to 64"), std::string::npos);
  EXPECT_NE(refused([](Plan& p) { p.order.pop_back(); }).find("expected 6"), std::string::npos);
  EXPECT_NE(refused([](Plan& p) { p.order[4] = 6; }).find("order[4]"), std::string::npos);
  EXPECT_NE(refused([](Plan& p) { p.order[4] = 0; }).find("second time"), std::string::npos);
  EXPECT_NE(refused([](Plan& p) {
              p.further_orders = {p.order, {0, 1}};
            }).find("further_orders[1]: found 2 ranks"),
            std::string::npos);
  EXPECT_NE(refused([](Plan& p) { p.further_orders.assign(16, p.order); }).find("expected at most 15"),
            std::string::npos);
  EXPECT_NE(refused([](Plan& p) {
              p.collective = Collective::broadcast;
              p.dimensions[0].algorithm = Algorithm::halving_doubling;
            }).find("halving_doubling"),
            std::string::npos);
  EXPECT_NE(refused([](Plan& p) {
              p.decomposition = Decomposition({4, 2}, {2});
              p.dimensions[0].algorithm = Algorithm::one_shot;
            }).find("expected ring, halving_doubling, two_shot or tree"),
            std::string::npos);
  EXPECT_NE(refused([](Plan& p) {
              p.collective = Collective::broadcast;
              p.decomposition = Decomposition({4, 2}, {2});
              p.dimensions[0].algorithm = Algorithm::two_shot;
            }).find("ragged"),
            std::string::npos);
}

struct BadJson {
  const char* find;
  const char* replace;
  const char* path;
};

// The error about a file edited by hand would not name the place, or the file would be read as another plan.
TEST(Plan, BadJsonNamesThePlace) {
  const BadJson cases[] = {
      {"\"ddl_plan\": 1", "\"ddl_plan\": 2", "ddl_plan: found 2"},
      {"\"ddl_plan\": 1,", "", "no key 'ddl_plan'"},
      {"\"chunks\": 16", "\"chunk\": 16", "unknown key 'chunk'"},
      {"\"chunks\": 16", "\"chunks\": 16, \"chunks\": 16", "key 'chunks' a second time"},
      {"\"chunks\": 16", "\"chunks\": 65", "chunks: found 65, expected a whole number from 1 to 64"},
      {"\"chunks\": 16", "\"chunks\": 99999999999999999999", "chunks: found 1e+20"},
      {"\"chunks\": 16", "\"chunks\": -1", "chunks: found -1"},
      {"\"chunks\": 16", "\"chunks\": 1.5", "chunks: found 1.5"},
      {"\"chunks\": 16", "\"chunks\": \"16\"", "chunks: found '16'"},
      {"\"chunks\": 16", "\"chunks\": [16]", "chunks: found a list"},
      {"\"bytes\": 717668352", "\"bytes\": -4", "bytes: found -4"},
      {"\"collective\": \"all_reduce\"", "\"collective\": \"barrier\"", "collective: found 'barrier'"},
      {"\"type\": \"f32\"", "\"type\": \"f31\"", "type: found 'f31'"},
      {"\"mode\": \"explore\"", "\"mode\": null", "mode: found null"},
      {"\"2x3\"", "\"2x4\"", "decomposition 2x4 has 8 positions"},
      {"\"2x3\"", "\"2y3\"", "decomposition '2y3': "},
      {"\"2x3\"", "\"6\"", "found 2 dimensions, expected 1"},
      {"\"two_shot\"", "\"three_shot\"", "dimensions[1].algorithm: found 'three_shot'"},
      {"\"carrier\":\"network\"", "\"carrier\":\"pigeon\"", "dimensions[1].carrier: found 'pigeon'"},
      {"\"carrier\":\"network\"", "\"carrier\":7", "dimensions[1].carrier: found 7"},
      {",\"carrier\":\"network\"", "", "dimensions[1]: found no key 'carrier'"},
      {"[0,3,1,4,2,5]", "[0,3,1,4,2,2]", "order[5]: found rank 2 a second time"},
      {"[0,3,1,4,2,5]", "[0,3,1,4,2]", "decomposition 2x3 has 6 positions"},
      {"[0,3,1,4,2,5]", "[0,3,1,4,2,-5]", "order[5]: found -5"},
      {"[0,3,1,4,2,5]", "[0,3,1,4,2,99999999]", "order[5]: found 99999999"},
      {"[0,3,1,4,2,5]", "[]", "order: found no ranks"},
      {"[0,3,1,4,2,5]", "[[0]]", "order[0]: found a list"},
      {"\"predicted_us\": 88200.125", "\"predicted_us\": 1e300", "predicted_us: found 1e+300"},
      {"\"predicted_us\": 88200.125", "\"predicted_us\": -0.5", "predicted_us: found -0.5"},
      {"\"0xfedcba9876543210\"", "\"0xFEDCBA9876543210\"", "topology_hash: "},
      {"\"0xfedcba9876543210\"", "\"12\"", "topology_hash: "},
      {"\"notes\": [", "\"notes\": [1, ", "notes[0]: found 1"},
      {"{", "[{", "top level: found a list"},
  };
  const std::string good = to_json(hierarchy());
  for (const BadJson& bad : cases) {
    std::string text = good;
    const auto at = text.find(bad.find);
    ASSERT_NE(at, std::string::npos) << bad.find << " in " << good;
    text.replace(at, std::string(bad.find).size(), bad.replace);
    const std::string message =
        message_of(ErrorCode::corrupt_data, [&] { (void)plan_from_json(text, "my.json"); });
    EXPECT_TRUE(message.starts_with("my.json: ")) << message;
    EXPECT_NE(message.find(bad.path), std::string::npos) << bad.replace << ": " << message;
  }
  for (std::size_t length = 0; length + 2 < good.size(); length += 7) {
    const std::string message =
        message_of(ErrorCode::corrupt_data, [&] { (void)plan_from_json(good.substr(0, length), "cut"); });
    EXPECT_TRUE(message.starts_with("cut: ")) << message;
  }
}

TEST(Plan, ModesHaveLetters) {
  for (const char letter : std::string("prnbcm"))
    EXPECT_EQ(letter_of(mode_from_letter({&letter, 1})), letter);
  for (const char* bad : {"", "x", "pp", "P", "\n"}) {
    const std::string message = message_of(ErrorCode::invalid_argument, [&] { (void)mode_from_letter(bad); });
    EXPECT_NE(message.find("p (explore), r (rings)"), std::string::npos) << message;
  }
}

TEST(Plan, TextSaysWhatIsDone) {
  EXPECT_EQ(summary(hierarchy()),
            "all_reduce 717.7 MB f32: 2x3 by host, ring shared_memory + two_shot network, 16 chunks, "
            "predicted 88.2 ms");
  const std::string text = to_text(hierarchy());
  for (const char* part : {"mode p (explore), order 0 3 1 4 2 5", "reduce_scatter", "all_gather", "2.25 us",
                           "1.02 times", "note: a note"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_NE(text.find("358.8 MB"), std::string::npos) << text;  // N/2 in the first dimension
  EXPECT_NE(text.find("239.2 MB"), std::string::npos) << text;  // N/2 x 2/3 in the second

  EXPECT_NE(summary(Plan{}).find("nothing to move, 1 chunk"), std::string::npos) << summary(Plan{});
  Plan long_one;
  std::vector<int> sizes(1000, 2);
  sizes.back() = 1;
  long_one.decomposition = Decomposition(sizes, {1000});
  long_one.dimensions.resize(2);
  EXPECT_LT(summary(long_one).size(), 200U);
}

}  // namespace
}  // namespace ddl::topology
