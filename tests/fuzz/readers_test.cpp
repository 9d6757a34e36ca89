// Passes the corpus, and a fixed set of mutants of it, to each reader.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/reader.hpp"

namespace ddl::fuzz {
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

class Readers : public testing::TestWithParam<Reader> {};

// Damaged bytes would crash the program that reads them, or be read as something else.
TEST_P(Readers, TakesAnyBytes) {
  const Reader& reader = GetParam();
  const auto seeds = corpus(std::string(reader.name));
  ASSERT_GE(seeds.size(), 2U);
  std::size_t accepted = 0;
  for (const Seed& seed : seeds) {
    SCOPED_TRACE(seed.name);
    bool is_accepted = false;
    ASSERT_NO_THROW(is_accepted = reader.takes(seed.text));
    EXPECT_EQ(is_accepted, seed.name.starts_with("good"));
  }
  std::mt19937 random(1);
  constexpr int most = 6000;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  int mutants = 0;
  for (; mutants < most && std::chrono::steady_clock::now() < until; ++mutants) {
    const Seed& seed = seeds[random() % seeds.size()];
    const std::string text = mutant(seed, seeds[random() % seeds.size()].text, random);
    ASSERT_NO_THROW(accepted += reader.takes(text) ? 1 : 0) << seed.name << ", mutant " << mutants << ":\n"
                                                            << testing::PrintToString(text);
  }
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, static_cast<std::size_t>(mutants));
}

INSTANTIATE_TEST_SUITE_P(All, Readers, testing::ValuesIn(readers().begin(), readers().end()),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace ddl::fuzz
