// Translation of lines of text: batches and ranks affect only the speed.

#include "nmt_example/inference/translator.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <mutex>
#include <set>
#include <sstream>

#include "nmt_example/backend/wrapped_backend.hpp"
#include "nmt_example/hidden_memory_backend.hpp"
#include "nmt_example/model_test_support.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace nmt {
namespace {

using Lines = std::vector<std::string>;

Vocabulary words(const std::string& list) {
  const ddl::test::TemporaryDirectory directory;
  const auto path = directory.path() / "words";
  std::ofstream(path) << list;
  return Vocabulary::from_word_list(path);
}

ModelShape shape() { return test::shape_of(16, true, 2, 2, AttentionKind::scaled_luong); }

/// An untrained model, whose translations are nonsense but the same for the same line.
struct Fixture {
  Vocabulary source = words("the\na\ndog\ncat\nsees\nhears\nold\nnew\n");  // 8 and 3 special ones: 11
  Vocabulary target = words("der\neine\nHund\nKatze\nsieht\nhört\n");      // 9
  test::TestModel model{make_cpu_backend(1), shape(), {1, 1, 1}, 1.5};

  Translator translator(const Options& options) { return {{&model.model()}, source, target, options}; }
};

Options beam(int width) {
  Options options;
  options.beam_width = width;
  options.length_penalty_weight = width > 0 ? 1.0 : 0.0;
  options.coverage_penalty_weight = width > 0 ? 0.2 : 0.0;
  return options;
}

Lines lines() {
  return {"the dog sees",
          "",
          "a cat",
          "the old cat hears a new dog and the old dog",
          "dog",
          "   ",
          "a cat",
          "old new old new old new old new",
          "hears",
          "the dog sees a cat",
          "",
          "new cat"};
}

// Lines of some ranks and batches would be written in the wrong order.
TEST(Translator, KeepsTheOrderAndEmptyLines) {
  Fixture fixture;
  for (const int width : {0, 1, 4}) {
    Translator translator = fixture.translator(beam(width));
    const Lines together = translator.translate(lines());
    ASSERT_EQ(together.size(), lines().size());
    for (std::size_t i = 0; i < together.size(); ++i) {
      EXPECT_EQ(together[i], translator.translate(Lines{lines()[i]}).at(0)) << "line " << i;
    }
    EXPECT_EQ(together[1], "");
    EXPECT_EQ(together[5], "");
    EXPECT_EQ(together[2], together[6]);
    const std::set<std::string> different(together.begin(), together.end());
    EXPECT_GE(different.size(), 5u) << "a model that always says the same tests nothing";
  }
}

// A model beside itself would translate otherwise than alone; or a score would not be that of its
// translation.
TEST(Translator, AModelBesideItselfTranslatesAsAlone) {
  Fixture fixture;
  Options options = beam(3);
  options.coverage_penalty_weight = 0.2;
  options.infer = options.scores = options.alignments = true;
  Model* const model = &fixture.model.model();
  const Lines alone = fixture.translator(options).translate(lines(), 2);
  const Lines together =
      Translator({model, model}, fixture.source, fixture.target, options).translate(lines(), 2);
  ASSERT_EQ(together.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const std::size_t tab = alone[i].find('\t'), other_tab = together[i].find('\t');
    EXPECT_EQ(alone[i].substr(0, tab), together[i].substr(0, other_tab)) << "line " << i;
    if (alone[i].empty()) continue;  // of an empty line
    ASSERT_NE(tab, std::string::npos) << alone[i];
    const double score = std::stod(alone[i].substr(tab + 1));
    EXPECT_NEAR(score, std::stod(together[i].substr(other_tab + 1)), 1e-4);
    EXPECT_LT(score, 0);
  }
}

/// Counts the bytes that are downloaded from memory that the host cannot access.
class DownloadCount final : public WrappedBackend {
 public:
  DownloadCount() : WrappedBackend(test::make_hidden_memory_backend()) {}
  double bytes = 0;

 private:
  void before(const Work& work) override {
    if (work.operation == "download") bytes += work.bytes;
  }
  void after(const Work&) override {}
};

// The host would wait for the probabilities of all words, and compute what a device computes faster.
TEST(Translator, DownloadsAFewNumbersOfEachHypothesis) {
  constexpr int width = 3, steps = 4;
  std::string list;
  for (int i = 0; i < 3000; ++i) list += std::to_string(i) + '\n';
  const Vocabulary source = Fixture().source, target = words(list);
  ModelShape large = shape();
  large.target_vocabulary = static_cast<std::int64_t>(target.size());
  const auto backend = std::make_shared<DownloadCount>();
  test::TestModel first(backend, large, {1, 1, 1}, 0.3), second(backend, large, {1, 1, 1}, 0.2);
  for (const bool samples : {false, true}) {
    for (const bool together : {false, true}) {
      Options options = beam(samples ? 0 : width);
      options.coverage_penalty_weight = 0;  // of attention, which is downloaded too
      options.sampling_temperature = samples ? 1 : 0;
      options.tgt_max_len_infer = steps;
      std::vector<Model*> models{&first.model()};
      if (together) models.push_back(&second.model());
      Translator translator(models, source, target, options);
      backend->bytes = 0;
      const Lines found = translator.translate(Lines{"the dog", "a cat"}, width);
      EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), 2 * width);
      EXPECT_GT(backend->bytes, 0);
      // Less than the probabilities of a single hypothesis.
      EXPECT_LE(backend->bytes, 2 * width * steps * (2 * (width + 2) + 1) * sizeof(double));
    }
  }
}

// Alignments would be those of another line or translation, or depend on what is translated together.
TEST(Translator, AlignsTheWordsOfEachTranslation) {
  Fixture fixture;
  std::set<std::string> different;
  for (const bool samples : {false, true}) {
    Options options = beam(samples ? 0 : 4);
    options.sampling_temperature = samples ? 1 : 0;
    options.infer = options.alignments = true;
    const Lines found = fixture.translator(options).translate(lines(), 2);
    ASSERT_EQ(found.size(), 2 * lines().size());
    options.infer_batch_size = 1;
    EXPECT_EQ(fixture.translator(options).translate(lines(), 2), found);
    Model* const model = &fixture.model.model();
    EXPECT_EQ(Translator({model, model}, fixture.source, fixture.target, options).translate(lines(), 2),
              found);
    options.alignments = false;
    const Lines bare = fixture.translator(options).translate(lines(), 2);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t tab = found[i].find('\t');
      EXPECT_EQ(found[i].substr(0, tab), bare[i]);
      if (bare[i].empty()) continue;  // also of an empty line
      std::istringstream pairs(found[i].substr(tab + 1));
      const auto sources = static_cast<int>(fixture.source.encode(lines()[i / 2]).size());
      int target = 0;
      for (std::string pair; pairs >> pair; ++target) {
        const int source = std::stoi(pair);
        EXPECT_EQ(pair, std::to_string(source) + "-" + std::to_string(target)) << found[i];
        EXPECT_TRUE(source >= 0 && source < sources) << found[i];
      }
      EXPECT_EQ(target, std::ranges::count(bare[i], ' ') + 1) << found[i];
      different.insert(found[i].substr(tab + 1));
    }
  }
  EXPECT_GE(different.size(), 12U) << "alignments that are all alike test nothing";
}

// A smaller --infer_batch_size, to save memory, would change translations.
TEST(Translator, BatchSizeDoesNotMatter) {
  Fixture fixture;
  for (const int width : {0, 3}) {
    Options options = beam(width);
    options.infer_batch_size = 1;
    const Lines expected = fixture.translator(options).translate(lines());
    for (const int batch : {2, 5, 12, 100}) {
      options.infer_batch_size = batch;
      EXPECT_EQ(fixture.translator(options).translate(lines()), expected) << "batches of " << batch;
    }
  }
}

// Translations of a line would be those of another, or the first would not be the best.
TEST(Translator, GivesSeveralTranslationsOfALine) {
  Fixture fixture;
  Translator translator = fixture.translator(beam(4));
  const Lines best = translator.translate(lines());
  const Lines found = translator.translate(lines(), 3);
  ASSERT_EQ(found.size(), 3 * lines().size());
  for (std::size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(found[3 * i], best[i]) << "line " << i;
    if (best[i].empty()) continue;
    EXPECT_EQ(std::set<std::string>(&found[3 * i], &found[3 * i] + 3).size(), 3U) << "line " << i;
  }
}

// Samples would differ with the batch or the number of ranks.
TEST(Translator, SamplesDependOnTheLineAlone) {
  Options options;
  options.infer_mode = InferMode::sample;
  options.sampling_temperature = 1.0;
  options.infer_batch_size = 1;
  const Lines expected = Fixture().translator(options).translate(lines(), 2);
  ASSERT_EQ(expected.size(), 2 * lines().size());
  EXPECT_NE(expected[4], expected[5]);
  EXPECT_NE(expected[4], expected[12]) << "lines 2 and 6 are the same";
  EXPECT_EQ(expected[2], "");
  options.infer_batch_size = 32;
  for (const int ranks : {1, 3}) {
    ddl::run_in_process(ranks, [&](ddl::Context& context) {
      Fixture fixture;
      EXPECT_EQ(fixture.translator(options).translate(context, lines(), 2), expected);
    });
  }
  options.random_seed = 2;
  EXPECT_NE(Fixture().translator(options).translate(lines(), 2), expected);
}

// BLEU would depend on the number of ranks, or a line would be lost if there are more ranks than lines.
TEST(Translator, RanksShareTheWorkAndAllGetTheResult) {
  for (const int width : {0, 3}) {
    for (const Lines& input : {lines(), Lines{"", "a cat"}, Lines{}}) {
      const Lines expected = Fixture().translator(beam(width)).translate(input);
      for (const int ranks : {1, 3}) {
        std::mutex mutex;
        int compared = 0;
        ddl::run_in_process(ranks, [&](ddl::Context& context) {
          Fixture fixture;
          const Lines found = fixture.translator(beam(width)).translate(context, input);
          const std::lock_guard lock(mutex);
          EXPECT_EQ(found, expected) << ranks << " ranks";
          ++compared;
        });
        EXPECT_EQ(compared, ranks);
      }
    }
  }
}

// Endless sources would exhaust memory, or requested limits would have no effect.
TEST(Translator, CutsSourcesAndTranslationsWhereAsked) {
  Fixture fixture;
  Options options = beam(0);
  options.src_max_len_infer = 2;
  const Lines cut = fixture.translator(options).translate(Lines{"the dog sees a cat"});
  EXPECT_EQ(cut, fixture.translator(options).translate(Lines{"the dog"}));
  options = beam(0);
  options.tgt_max_len_infer = 1;
  for (const std::string& line : fixture.translator(options).translate(lines())) {
    EXPECT_EQ(line.find(' '), std::string::npos) << line;
  }
}

// One line that is no sentence would end the process.
TEST(Translator, AHugeLineIsRefusedOrCut) {
  Fixture fixture;
  std::string huge;
  for (int i = 0; i < 1'000'000; ++i) huge += "the ";
  Options options = beam(0);
  options.tgt_max_len_infer = 3;
  const ddl::Error error = ddl::test::error_of([&] {
    fixture.translator(options).translate(Lines{"a cat", huge});
  });
  EXPECT_EQ(error.code(), ddl::ErrorCode::unsupported);
  ddl::test::expect_parts(error.what(), {"line 2 has 1000000 words", "GB", "--src_max_len_infer"});
  options.src_max_len_infer = 5;
  EXPECT_EQ(fixture.translator(options).translate(Lines{huge, "a cat"}),
            fixture.translator(options).translate(Lines{"the the the the the", "a cat"}));
}

// The product of batch and longest line would be planned, though one line alone is long.
TEST(Translator, LongLinesGetSmallBatches) {
  Fixture fixture;
  Options options = beam(0);
  options.infer_batch_size = 1 << 20;
  options.tgt_max_len_infer = 2;
  std::string line;
  for (int i = 0; i < 20'000; ++i) line += "old ";
  Lines input = lines();
  for (int i = 0; i < 40; ++i) input.push_back(line);
  const Lines found = fixture.translator(options).translate(input);
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (i <= lines().size()) {
      EXPECT_EQ(found[i], fixture.translator(options).translate(Lines{input[i]}).at(0));
    } else {
      EXPECT_EQ(found[i], found[lines().size()]);
    }
  }
}

}  // namespace
}  // namespace nmt
