#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/data/number_corpus.hpp"
#include "nmt_example/data/number_words.hpp"

namespace {

using nmt::CorpusSplit;

struct Golden {
  int value;
  std::string english, german;
};

std::vector<Golden> read_golden(const std::string& name) {
  std::ifstream stream(std::string(DDL_GOLDEN_DIR) + "/" + name);
  std::vector<Golden> result;
  std::string line;
  while (std::getline(stream, line)) {
    std::istringstream fields(line);
    Golden golden{};
    std::string value;
    std::getline(fields, value, '\t');
    std::getline(fields, golden.english, '\t');
    std::getline(fields, golden.german, '\t');
    golden.value = std::stoi(value);
    result.push_back(golden);
  }
  return result;
}

/// The maximal sequences of number words in an English sentence.
std::vector<std::string> number_phrases(const std::string& sentence) {
  static const std::set<std::string> number_words = {
      "zero",       "one",        "two",        "three",     "four",      "five",        "six",
      "seven",      "eight",      "nine",       "ten",       "eleven",    "twelve",      "thirteen",
      "fourteen",   "fifteen",    "sixteen",    "seventeen", "eighteen",  "nineteen",    "twenty",
      "thirty",     "forty",      "fifty",      "sixty",     "seventy",   "eighty",      "ninety",
      "hundred",    "thousand",   "oh",         "first",     "second",    "third",       "fourth",
      "fifth",      "sixth",      "seventh",    "eighth",    "ninth",     "tenth",       "eleventh",
      "twelfth",    "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth",
      "nineteenth", "twentieth",  "thirtieth",  "fortieth",  "fiftieth",  "sixtieth",    "seventieth",
      "eightieth",  "ninetieth",  "hundredth",  "half",      "quarter"};
  std::string text = sentence;
  text.erase(
      std::remove_if(text.begin(), text.end(), [](char c) { return c == '.' || c == '?' || c == ','; }),
      text.end());
  std::istringstream stream(text);
  std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  for (std::string& word : words)
    word[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(word[0])));
  std::vector<std::string> phrases;
  std::string run;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool joins =
        words[i] == "and" && !run.empty() && i + 1 < words.size() && number_words.count(words[i + 1]) > 0;
    if (joins || number_words.count(words[i]) > 0) {
      run += (run.empty() ? "" : " ") + words[i];
    } else if (!run.empty()) {
      phrases.push_back(run);
      run.clear();
    }
  }
  if (!run.empty()) phrases.push_back(run);
  return phrases;
}

// The demonstration would contain wrong English or German.
TEST(NumberWords, CardinalsAreSpelledAsPeopleSpellThem) {
  const auto goldens = read_golden("cardinals.tsv");
  ASSERT_GE(goldens.size(), 40U);
  for (const Golden& golden : goldens) {
    EXPECT_EQ(nmt::english_cardinal(golden.value), golden.english);
    EXPECT_EQ(nmt::german_cardinal(golden.value), golden.german);
  }
}

TEST(NumberWords, OrdinalsAndYearsAreSpelledAsPeopleSpellThem) {
  const auto ordinals = read_golden("ordinals.tsv");
  ASSERT_GE(ordinals.size(), 20U);
  for (const Golden& golden : ordinals) {
    EXPECT_EQ(nmt::english_ordinal(golden.value), golden.english);
    EXPECT_EQ(nmt::german_ordinal(golden.value, "en"), golden.german);
  }
  const auto years = read_golden("years.tsv");
  ASSERT_GE(years.size(), 10U);
  for (const Golden& golden : years) {
    EXPECT_EQ(nmt::english_year(golden.value), golden.english);
    EXPECT_EQ(nmt::german_year(golden.value), golden.german);
  }
  EXPECT_EQ(nmt::english_time(3, 47), "three forty seven");
  EXPECT_EQ(nmt::german_time(3, 47), "drei Uhr siebenundvierzig");
  EXPECT_EQ(nmt::english_time(1, 1), "one oh one");
  EXPECT_EQ(nmt::german_time(1, 1), "ein Uhr eins");
}

// No model could distinguish two numbers with the same words.
TEST(NumberWords, NoTwoCardinalsShareTheirWords) {
  std::unordered_set<std::string> english, german;
  for (int value = 0; value < 1'000'000; value += 7) {
    EXPECT_TRUE(english.insert(nmt::english_cardinal(value)).second) << value;
    EXPECT_TRUE(german.insert(nmt::german_cardinal(value)).second) << value;
  }
}

TEST(NumberWords, ValuesOutsideTheRangeAreRefused) {
  EXPECT_THROW(nmt::english_cardinal(-1), ddl::Error);
  EXPECT_THROW(nmt::german_cardinal(1'000'000), ddl::Error);
  EXPECT_THROW(nmt::english_ordinal(0), ddl::Error);
  EXPECT_THROW(nmt::german_year(2100), ddl::Error);
  EXPECT_THROW(nmt::german_time(24, 0), ddl::Error);
}

// Ranks that generate the corpus themselves would train on different data, and a published score could not be
// repeated.
TEST(NumberCorpus, IsTheSameForTheSameSeedAndOtherwiseNot) {
  const auto first = nmt::number_corpus(CorpusSplit::train, 500, 7);
  const auto again = nmt::number_corpus(CorpusSplit::train, 500, 7);
  EXPECT_EQ(first.source, again.source);
  EXPECT_EQ(first.target, again.target);
  EXPECT_NE(first.source, nmt::number_corpus(CorpusSplit::train, 500, 8).source);
  EXPECT_EQ(nmt::number_corpus(CorpusSplit::dev, 0, 7).size(), 0U);
  // Fixed text, which is the same with other compilers and in later versions.
  EXPECT_EQ(first.source[0], "She came home eleven weeks ago.");
  EXPECT_EQ(first.target[0], "Sie kam vor elf Wochen nach Hause.");
}

// The held-out score would measure memorisation instead of translation.
TEST(NumberCorpus, NoNumberPhraseOfDevOrTestOccursInTrain) {
  std::unordered_set<std::string> train;
  for (const std::string& sentence : nmt::number_corpus(CorpusSplit::train, 200'000, 1).source) {
    for (std::string& phrase : number_phrases(sentence)) train.insert(std::move(phrase));
  }
  ASSERT_GT(train.size(), 50'000U);
  std::unordered_set<std::string> dev;
  for (const CorpusSplit split : {CorpusSplit::dev, CorpusSplit::test}) {
    for (const std::string& sentence : nmt::number_corpus(split, 5'000, 1).source) {
      const auto phrases = number_phrases(sentence);
      EXPECT_FALSE(phrases.empty()) << sentence;
      for (const std::string& phrase : phrases) {
        EXPECT_EQ(train.count(phrase), 0U) << phrase << " in: " << sentence;
        EXPECT_EQ(nmt::split_of_number_phrase(phrase), split) << sentence;
        if (split == CorpusSplit::dev) dev.insert(phrase);
        if (split == CorpusSplit::test) {
          EXPECT_EQ(dev.count(phrase), 0U) << sentence;
        }
      }
    }
  }
}

// Held-out phrases would contain words that training does not show, and no model could translate them.
TEST(NumberCorpus, EveryWordOfDevAndTestOccursInTrain) {
  const auto words_of = [](const std::vector<std::string>& sentences) {
    std::set<std::string> words;
    for (const std::string& sentence : sentences) {
      std::istringstream stream(sentence);
      for (std::string word; stream >> word;) {
        while (!word.empty() && std::ispunct(static_cast<unsigned char>(word.back()))) word.pop_back();
        words.insert(word);
      }
    }
    return words;
  };
  const auto train = words_of(nmt::number_corpus(CorpusSplit::train, 20'000, 1).source);
  for (const CorpusSplit split : {CorpusSplit::dev, CorpusSplit::test}) {
    for (const std::string& word : words_of(nmt::number_corpus(split, 3'000, 1).source)) {
      EXPECT_EQ(train.count(word), 1U) << word;
    }
  }
}

TEST(NumberCorpus, EverySplitShowsAtLeastTwelveTemplates) {
  const auto templates = nmt::number_templates();
  EXPECT_GE(templates.size(), 12U);
  std::size_t held_out = 0;
  for (const auto& t : templates) {
    EXPECT_GE(t.frames, 2U) << t.name;
    held_out += t.train_only ? 0 : 1;
  }
  EXPECT_GE(held_out, 12U);
  for (const CorpusSplit split : {CorpusSplit::train, CorpusSplit::dev, CorpusSplit::test}) {
    nmt::NumberCorpusGenerator generator(split, 3);
    std::set<std::size_t> seen;
    for (int i = 0; i < 3'000; ++i) seen.insert(generator.next().template_index);
    EXPECT_EQ(seen.size(), split == CorpusSplit::train ? templates.size() : held_out);
  }
}

// Two references for one source would limit the exact matches of every model.
TEST(NumberCorpus, ASourceHasOneTranslation) {
  std::unordered_map<std::string, std::string> translation;
  nmt::NumberCorpusGenerator generator(CorpusSplit::train, 5);
  for (int i = 0; i < 100'000; ++i) {
    const auto sentence = generator.next();
    const auto [known, is_new] = translation.emplace(sentence.source, sentence.target);
    EXPECT_EQ(known->second, sentence.target) << sentence.source;
    if (is_new) {
      const auto words = 1 + std::count(sentence.source.begin(), sentence.source.end(), ' ');
      EXPECT_GE(words, 4) << sentence.source;
      EXPECT_LE(words, 30) << sentence.source;
      EXPECT_EQ(sentence.source.find_first_of("{}"), std::string::npos) << sentence.source;
      EXPECT_EQ(sentence.target.find_first_of("{}"), std::string::npos) << sentence.target;
    }
  }
}

// Models could memorise the corpus. With c equal pairs among n draws, 1/sum(p^2) is about n^2/2c, which is at
// most the number of sources (birthday estimate). The long sentences of one template with two numbers exceed
// the bound.
TEST(NumberCorpus, HasAtLeastTenMillionSources) {
  const auto templates = nmt::number_templates();
  const auto comparison = static_cast<std::size_t>(
      std::find_if(templates.begin(), templates.end(), [](const auto& t) { return t.name == "comparison"; }) -
      templates.begin());
  ASSERT_LT(comparison, templates.size());
  nmt::NumberCorpusGenerator generator(CorpusSplit::train, 11);
  std::unordered_map<std::string, std::size_t> times;
  double drawn = 0;
  for (int i = 0; i < 600'000; ++i) {
    const auto sentence = generator.next();
    if (sentence.template_index != comparison) continue;
    if (std::count(sentence.source.begin(), sentence.source.end(), ' ') < 16) continue;
    ++times[sentence.source];
    ++drawn;
  }
  double equal_pairs = 1;  // not 0, because no collision does not mean infinitely many sources
  for (const auto& [source, count] : times) equal_pairs += static_cast<double>(count * (count - 1)) / 2;
  EXPECT_GE(drawn * drawn / 2 / equal_pairs, 1e7);
}

TEST(NumberCorpus, GermanAgreesInNumberGenderAndCase) {
  std::unordered_set<std::string> sentences;
  std::map<std::string, std::string> translation;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto text = nmt::number_corpus(CorpusSplit::train, 100'000, seed);
    for (std::size_t i = 0; i < text.size(); ++i) translation[text.source[i]] = text.target[i];
  }
  const std::map<std::string, std::string> expected = {
      {"The cook bought one apple.", "Der Koch kaufte einen Apfel."},
      {"She painted one lamp.", "Sie malte eine Lampe."},
      {"We need one egg.", "Wir brauchen ein Ei."},
      {"The shop opens in one minute.", "Das Geschäft öffnet in einer Minute."},
      {"The shop opens in one day.", "Das Geschäft öffnet in einem Tag."},
      {"We moved here two years ago.", "Wir sind vor zwei Jahren hierher gezogen."},
      {"The train leaves at half past twelve.", "Der Zug fährt um halb eins ab."},
      {"The meeting starts at a quarter past three.", "Die Besprechung beginnt um Viertel nach drei."},
      {"Please call me at one o'clock.", "Bitte ruf mich um ein Uhr an."},
      {"Her birthday is on the third of March.", "Ihr Geburtstag ist am dritten März."},
  };
  for (const auto& [source, target] : expected) {
    ASSERT_EQ(translation.count(source), 1U) << source;
    EXPECT_EQ(translation[source], target);
  }
}

}  // namespace
