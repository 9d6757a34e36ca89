#include "nmt_example/metrics/metric.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/metrics/accuracy.hpp"
#include "nmt_example/metrics/bleu.hpp"
#include "nmt_example/metrics/chrf.hpp"
#include "nmt_example/metrics/rouge.hpp"
#include "nmt_example/metrics/ter.hpp"
#include "nmt_example/metrics/tokenizer_13a.hpp"
#include "support/thrown_error.hpp"

namespace {

using Strings = std::vector<std::string>;

// Scores would differ from sacreBLEU's, and could not be compared with published ones.
TEST(Metrics, EqualSacrebleuOnTheGoldenFiles) {
  const std::string folder = std::string(DDL_GOLDEN_DIR) + "/metrics/";
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
    double chrf = 0;
    double ter = 0;
    fields >> brevity_penalty >> hypothesis_length >> reference_length >> chrf >> ter;
    ASSERT_TRUE(fields) << line;
    SCOPED_TRACE(name);
    const auto text = nmt::read_parallel_text(folder + name, "hyp", "ref");
    const nmt::BleuScore bleu = nmt::corpus_bleu(text.source, text.target);
    EXPECT_NEAR(bleu.score, score, 1e-6);
    for (std::size_t n = 0; n < 4; ++n) EXPECT_NEAR(bleu.precisions[n], precisions[n], 1e-6) << n + 1;
    EXPECT_NEAR(bleu.brevity_penalty, brevity_penalty, 1e-6);
    EXPECT_EQ(bleu.hypothesis_length, hypothesis_length);
    EXPECT_EQ(bleu.reference_length, reference_length);
    EXPECT_NEAR(nmt::corpus_chrf(text.source, text.target), chrf, 1e-6);
    EXPECT_NEAR(nmt::corpus_ter(text.source, text.target), ter, 1e-6);
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

// A score of some lines would be taken for that of the whole text.
TEST(Metrics, UnequalOrNoSegmentsAreRefused) {
  const Strings one{"a"};
  const Strings two{"a", "b"};
  for (const nmt::Metric& metric : nmt::all_metrics()) {
    const auto refuses = [&](const Strings& hypotheses, const Strings& references) {
      EXPECT_THROW(metric.score(hypotheses, references), ddl::Error) << metric.name;
    };
    refuses(one, two);
    refuses({}, {});
  }
}

// A translator that repeats the reference would not be the best.
TEST(Metrics, AreBestForTheReferenceItself) {
  const Strings lines{"a b c d e f", "g h i j", "k l m n o"};
  for (const nmt::Metric& metric : nmt::all_metrics()) {
    const double best = metric.score(lines, lines).value, worst = metric.score(Strings(3), lines).value;
    EXPECT_NEAR(best, metric.counts_errors ? 0 : 100, 1e-9) << metric.name;
    EXPECT_NEAR(worst, metric.counts_errors ? 100 : 0, 1e-9) << metric.name;
    EXPECT_TRUE(metric.is_better(best, worst)) << metric.name;
    EXPECT_FALSE(metric.is_better(worst, best)) << metric.name;
    EXPECT_FALSE(metric.is_better(best, best)) << metric.name;
  }
}

// Words in another order would cost as much as wrong ones, and a capital letter as much as another word.
TEST(Metrics, TerCountsShiftsAndNoCase) {
  EXPECT_NEAR(nmt::corpus_ter(Strings{"on the mat the cat sat"}, Strings{"the cat sat on the mat"}),
              100.0 / 6, 1e-9);
  EXPECT_NEAR(nmt::corpus_ter(Strings{"\xC3\x9C"
                                      "BER \xC3\x89T\xC3\xA9"},
                              Strings{"\xC3\xBC"
                                      "ber \xC3\xA9t\xC3\x89"}),
              0, 1e-9);
  EXPECT_NEAR(nmt::corpus_ter(Strings{"a b c d"}, Strings{"a x"}), 150, 1e-9);
}

TEST(Metrics, AreFoundByName) {
  const auto found = nmt::metrics_of("rouge,bleu");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]->name, "rouge");
  EXPECT_EQ(found[1]->name, "bleu");
}

// Scores would not be those of tensorflow/nmt. Computed by hand from its definitions.
TEST(Metrics, RougeIsTheMeanOfTensorflowNmts) {
  // LCS "a c e": 3 of 5 words of the reference and 3 of 4 of the hypothesis.
  const double recall = 3.0 / 5.0;
  const double precision = 3.0 / 4.0;
  const double square = precision / recall * (precision / recall);
  const double first = (1 + square) * recall * precision / (recall + square * precision);
  EXPECT_NEAR(first, 0.6508, 1e-4);
  EXPECT_NEAR(nmt::rouge_l(Strings{"a c x e"}, Strings{"a b c d e"}), 100 * first, 1e-8);
  // The order of words counts: the longest common subsequence of the second pair is one word.
  EXPECT_NEAR(nmt::rouge_l(Strings{" a c x e ", "b a"}, Strings{"a b c d e", "a b\t"}),
              100 * (first + 0.5) / 2, 1e-8);
  EXPECT_EQ(nmt::rouge_l(Strings{""}, Strings{"a"}), 0);
}

TEST(Metrics, AccuraciesAreTensorflowNmts) {
  const Strings hypotheses{"a b c ", "a b", "", "x a b c"};
  const Strings references{" a b c", "a b c d", "a", "a b c"};
  EXPECT_DOUBLE_EQ(nmt::accuracy(hypotheses, references), 25);
  // 3 of 3 words, 2 of 4, none of 1, none of 4: all words are one place further.
  EXPECT_DOUBLE_EQ(nmt::word_accuracy(hypotheses, references), (100 + 50 + 0 + 0) / 4.0);
  EXPECT_DOUBLE_EQ(nmt::word_accuracy(Strings{"a  b"}, Strings{"a  c"}), 200 / 3.0);  // with an empty word
}

TEST(Metrics, TokenizedBleuIsTensorflowNmts) {
  // Matches 5 of 6, 3 of 5, 2 of 4, 1 of 3; as long as the reference.
  const Strings hypothesis{"the cat sat on a mat"};
  const Strings reference{"the cat sat on the mat"};
  EXPECT_NEAR(nmt::tokenized_bleu(hypothesis, reference),
              100 * std::pow(5.0 / 6 * 3 / 5 * 2 / 4 * 1 / 3, 0.25), 1e-9);
  // Shorter than the reference: exp(1 - 6/5). Punctuation belongs to the word.
  EXPECT_NEAR(nmt::tokenized_bleu(Strings{"the cat sat on the"}, reference), 100 * std::exp(1 - 6.0 / 5),
              1e-9);
  EXPECT_EQ(nmt::tokenized_bleu(Strings{"the cat, sat, on, the mat"}, reference), 0) << "it is not smoothed";
}

// chrF of characters that take several bytes would count bytes. Computed by sacrebleu 2.
TEST(Metrics, ChrfCountsCharacters) {
  EXPECT_NEAR(nmt::corpus_chrf(Strings{"\u00fcber\u00a0uns"}, Strings{"\u00fcber uns"}), 100, 1e-9);
}

}  // namespace
