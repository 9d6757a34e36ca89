// Runs the fuzzers' checks on the corpus and a fixed set of a few thousand mutants.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "topology/fuzz/measurement_checks.hpp"
#include "topology/fuzz/parser_checks.hpp"
#include "topology/fuzz/plan_checks.hpp"

namespace ddl::topology {
namespace {

struct Seed {
  std::string name;
  std::string text;
};

std::vector<Seed> corpus(const std::string& folder) {
  std::vector<Seed> seeds;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(DDL_FUZZ_CORPUS) / folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    seeds.push_back({entry.path().filename().string(), {std::istreambuf_iterator<char>(file), {}}});
  }
  std::ranges::sort(seeds, {}, &Seed::name);
  return seeds;
}

/// Makes one to four typical damages of files: changed bits and bytes; pieces that are lost, doubled, or
/// replaced by those of another file.
std::string mutant(const Seed& seed, const std::string& other, std::mt19937& random) {
  std::string text = seed.text;
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  const std::vector<std::string> words = {"-1",   "0",   "1e308", "1e999", "null", "\"\"",
                                          "{",    "]",   "<",     "/>",    "&",    "99999999999999999999",
                                          "\xff", "nan", "2x",    "4,",    "p"};
  for (std::size_t i = 1 + below(4); i > 0; --i) {
    const std::size_t at = below(text.size());
    const std::size_t length = std::min(below(40), text.size() - at);
    switch (below(6)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ static_cast<char>(1U << below(8)));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.replace(at, length, words[below(words.size())]);
        break;
      case 4:
        text.resize(at);
        break;
      default:
        text.insert(at, other.substr(below(other.size()), length));
    }
  }
  return text;
}

void run(const std::string& folder, bool (*check)(std::string_view)) {
  const auto seeds = corpus(folder);
  ASSERT_GE(seeds.size(), 5U);
  std::size_t accepted = 0;
  for (const Seed& seed : seeds) {
    SCOPED_TRACE(seed.name);
    bool is_accepted = false;
    ASSERT_NO_THROW(is_accepted = check(seed.text));
    EXPECT_EQ(is_accepted, seed.name.starts_with("good"));
  }
  std::mt19937 random(1);
  constexpr int mutants = 6000;
  for (int i = 0; i < mutants; ++i) {
    const Seed& seed = seeds[random() % seeds.size()];
    const std::string text = mutant(seed, seeds[random() % seeds.size()].text, random);
    ASSERT_NO_THROW(accepted += check(text) ? 1 : 0) << seed.name << ", mutant " << i << ":\n" << text;
  }
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, static_cast<std::size_t>(mutants));
}

// A damaged file would crash the program that reads it, or be read as something else.
TEST(TopologyParsers, JsonTakesAnyBytes) { run("json", check_topology_from_json); }
TEST(TopologyParsers, NcclXmlTakesAnyBytes) { run("nccl_xml", check_topology_from_nccl_xml); }
TEST(TopologyParsers, MeasurementsTakeAnyBytes) { run("measurements", check_measurements_from_json); }
TEST(TopologyParsers, PlanTakesAnyBytes) { run("plan_json", check_plan_from_json); }
TEST(TopologyParsers, DecompositionTakesAnyBytes) { run("decomposition", check_decomposition); }
TEST(TopologyParsers, ModeTakesAnyBytes) { run("mode", check_mode); }

}  // namespace
}  // namespace ddl::topology
