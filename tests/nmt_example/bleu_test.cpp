#include "nmt_example/metrics/bleu.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/metrics/tokenizer_13a.hpp"
#include "support/thrown_error.hpp"

namespace {

using Strings = std::vector<std::string>;

// Scores would differ from sacreBLEU's, and could not be compared with published ones.
TEST(Bleu, EqualsSacrebleuOnTheGoldenFiles) {
  const std::string folder = std::string(DDL_GOLDEN_DIR) + "/bleu/";
  std::ifstream expected(folder + "expected.tsv");
  std::string line;
  int files = 0;
  while (std::getline(expected, line)) {
    std::istringstream fields(line);
    std::string name;
    double score = 0;
    double brevity_penalty = 0;
    double precisions[4];
    std::size_t hypothesis_length = 0;
    std::size_t reference_length = 0;
    fields >> name >> score;
    for (double& precision : precisions) fields >> precision;
    fields >> brevity_penalty >> hypothesis_length >> reference_length;
    ASSERT_TRUE(fields) << line;
    SCOPED_TRACE(name);
    const auto text = nmt::read_parallel_text(folder + name, "hyp", "ref");
    const nmt::BleuScore bleu = nmt::corpus_bleu(text.source, text.target);
    EXPECT_NEAR(bleu.score, score, 1e-6);
    for (std::size_t n = 0; n < 4; ++n) EXPECT_NEAR(bleu.precisions[n], precisions[n], 1e-6) << n + 1;
    EXPECT_NEAR(bleu.brevity_penalty, brevity_penalty, 1e-6);
    EXPECT_EQ(bleu.hypothesis_length, hypothesis_length);
    EXPECT_EQ(bleu.reference_length, reference_length);
    ++files;
  }
  EXPECT_GE(files, 8);
}

TEST(Tokenizer13a, PunctuationIsSplitAsMteval) {
  EXPECT_EQ(nmt::tokenize_13a("x,.5"), (Strings{"x", ",", ".5"}));
  EXPECT_EQ(nmt::tokenize_13a("a.,5b"), (Strings{"a", ".", ",5b"}));
  EXPECT_EQ(nmt::tokenize_13a("1,000.5 5-6 well-known"), (Strings{"1,000.5", "5", "-", "6", "well-known"}));
  EXPECT_EQ(nmt::tokenize_13a("a\xC2\xA0"
                              "b \xE2\x80\xAF"),
            (Strings{"a", "b"}));
  EXPECT_EQ(nmt::tokenize_13a("it's &quot;x&amp;lt;"), (Strings{"it's", "\"", "x", "<"}));
  EXPECT_EQ(nmt::tokenize_13a("<skipped>over-\nflow\nx"), (Strings{"overflow", "x"}));
  EXPECT_EQ(nmt::tokenize_13a(" \t"), Strings{});
}

TEST(Bleu, PrintsAsSacrebleuDoes) {
  const Strings one = {"the cat sat on the mat"};
  EXPECT_EQ(nmt::to_string(nmt::corpus_bleu(one, one)),
            "BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000 hyp_len = 6 ref_len = 6)");
  EXPECT_EQ(nmt::bleu_signature, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp");
}

TEST(Bleu, UnequalOrNoSegmentsAreRefused) {
  const Strings one = {"a"};
  const Strings two = {"a", "b"};
  for (const auto& [hypotheses, references] :
       {std::pair{one, two}, std::pair{two, one}, std::pair{Strings(), Strings()}}) {
    ddl::test::expect_error(ddl::ErrorCode::invalid_argument,
                            {std::to_string(hypotheses.size()) + " hypotheses"},
                            [&] { nmt::corpus_bleu(hypotheses, references); });
    EXPECT_THROW(nmt::exact_match(hypotheses, references), ddl::Error);
  }
}

TEST(ExactMatch, CountsEqualLines) {
  EXPECT_DOUBLE_EQ(nmt::exact_match(Strings{"a", "b", "c", "D"}, Strings{"a", "b", "x", "d"}), 0.5);
}

}  // namespace
