#include "nmt_example/data/vocabulary.hpp"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "ddl/error.hpp"
#include "nmt_example/data/number_corpus.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace {

namespace fs = std::filesystem;
using ddl::ErrorCode;
using ddl::test::expect_error;
using nmt::SubwordType;
using nmt::Vocabulary;

const std::vector<std::string>& german() {
  static const std::vector<std::string> lines = nmt::number_corpus(nmt::CorpusSplit::train, 3000, 1).target;
  return lines;
}

const Vocabulary& trained() {
  static const Vocabulary vocabulary = Vocabulary::train(german(), 200);
  return vocabulary;
}

class WordList : public testing::Test {
 protected:
  [[nodiscard]] std::string write(const std::string& bytes) const {
    return directory_.write("vocab.de", bytes);
  }
  ddl::test::TemporaryDirectory directory_;
};

class Subwords : public testing::TestWithParam<SubwordType> {};
INSTANTIATE_TEST_SUITE_P(Types, Subwords, testing::Values(SubwordType::unigram, SubwordType::bpe),
                         [](const auto& test) -> std::string {
                           return test.param == SubwordType::unigram ? "unigram" : "bpe";
                         });

// Translations would not be the decoded text, in particular for text that training did not contain.
TEST_P(Subwords, DecodingGivesTheTextBack) {
  const auto vocabulary = Vocabulary::train(german(), 300, {.type = GetParam()});
  EXPECT_LE(vocabulary.size(), 300U);
  EXPECT_GT(vocabulary.size(), 200U);
  for (const std::string& line : nmt::number_corpus(nmt::CorpusSplit::test, 300, 9).target) {
    const auto ids = vocabulary.encode(line);
    EXPECT_FALSE(ids.empty());
    EXPECT_EQ(std::count(ids.begin(), ids.end(), Vocabulary::unk_id), 0) << line;
    EXPECT_EQ(vocabulary.decode(ids), line);
  }
  EXPECT_TRUE(vocabulary.encode("").empty());
  EXPECT_TRUE(vocabulary.encode("  ").empty());
  EXPECT_EQ(vocabulary.decode({}), "");
}

// Alignments would name other words than those of the text.
TEST_P(Subwords, PiecesKnowTheirWord) {
  const auto vocabulary = Vocabulary::train(german(), 120, {.type = GetParam()});
  for (const std::string text : {"drei Birnen", "  zwei  \xE4\xBD\xA0\xE4\xBD\xA0 x\xE4\xBD\xA0 Birnen "}) {
    const auto ids = vocabulary.encode(text);
    const auto numbers = vocabulary.word_numbers(text);
    ASSERT_EQ(numbers.size(), ids.size());
    std::istringstream words(text);
    std::int32_t count = 0;
    for (std::string word; words >> word; ++count) {
      std::vector<std::int32_t> of_word;
      for (std::size_t i = 0; i < ids.size(); ++i)
        if (numbers[i] == count) of_word.push_back(ids[i]);
      EXPECT_EQ(of_word, vocabulary.encode(word)) << word;
    }
    EXPECT_EQ(numbers.back(), count - 1);
  }
  // An unknown piece is a word of its own in a translation, whatever is beside it.
  auto ids = vocabulary.encode("drei Birnen");
  const auto numbers = vocabulary.word_numbers(ids);
  EXPECT_EQ(numbers, vocabulary.word_numbers("drei Birnen"));
  ids.insert(ids.end(), {Vocabulary::unk_id, ids.back()});
  auto more = numbers;
  more.insert(more.end(), {2, 3});
  EXPECT_EQ(vocabulary.word_numbers(ids), more) << vocabulary.decode(ids);
}

TEST_P(Subwords, SpecialPiecesHaveTheFirstIds) {
  const auto vocabulary = Vocabulary::train(german(), 200, {.type = GetParam()});
  EXPECT_EQ(vocabulary.piece(Vocabulary::unk()), "<unk>");
  EXPECT_EQ(vocabulary.piece(Vocabulary::bos()), "<s>");
  EXPECT_EQ(vocabulary.piece(Vocabulary::eos()), "</s>");
  auto ids = vocabulary.encode("drei Birnen");
  for (const std::int32_t id : ids) EXPECT_GT(id, 2);
  ids.insert(ids.begin(), Vocabulary::bos_id);
  ids.insert(ids.begin() + 3, Vocabulary::eos_id);
  ids.push_back(Vocabulary::eos_id);
  EXPECT_EQ(vocabulary.decode(ids), "drei Birnen");
  const auto unknown = vocabulary.encode("\xE4\xBD\xA0");
  EXPECT_EQ(std::count(unknown.begin(), unknown.end(), Vocabulary::unk_id), 1);
}

// Ranks that train the vocabulary, or a repeated run, would disagree on ids.
TEST_P(Subwords, TrainingIsRepeatable) {
  const auto first = Vocabulary::train(german(), 250, {.type = GetParam(), .seed = 3, .max_sentences = 1000});
  const auto again = Vocabulary::train(german(), 250, {.type = GetParam(), .seed = 3, .max_sentences = 1000});
  EXPECT_EQ(first.serialize(), again.serialize());
  const auto other = Vocabulary::train(german(), 250, {.type = GetParam(), .seed = 4, .max_sentences = 1000});
  EXPECT_NE(first.serialize(), other.serialize());
}

// NFKC would rewrite these characters, and BLEU on raw text would not match them.
TEST(SubwordText, CharactersAreKeptAsTheyAre) {
  const std::vector<std::string> lines = {
      "Er sagte \xE2\x80\x9Eja\xE2\x80\xA6\xE2\x80\x9C und gab mir \xC2\xBD Kilo.",
      "5\xC2\xA0"
      "Euro, 20 \xE2\x84\x83, \xEF\xBC\xA1 und A",
      "a < b > c"};
  const auto vocabulary = Vocabulary::train(lines, 60);
  for (const std::string& line : lines) EXPECT_EQ(vocabulary.decode(vocabulary.encode(line)), line);
}

TEST(SubwordText, SmallTextGivesASmallVocabulary) {
  const std::vector<std::string> lines = {"ein Hund", "zwei Hunde"};
  EXPECT_LT(Vocabulary::train(lines, 5000).size(), 100U);
  EXPECT_LT(Vocabulary::train(lines, 5000, {.type = SubwordType::bpe}).size(), 100U);
}

TEST(SubwordText, ImpossibleTrainingSaysWhatIsMissing) {
  expect_error(ErrorCode::invalid_argument, {"10 pieces", "different characters", "--vocab_size"},
               [] { Vocabulary::train(german(), 10); });
  expect_error(ErrorCode::invalid_argument, {"none of the 2 lines"}, [] {
    Vocabulary::train(std::vector<std::string>{"", "  "}, 100);
  });
  EXPECT_THROW(Vocabulary::train({}, 100), ddl::Error);
}

TEST(VocabularyStorage, BytesBringBackTheSameVocabulary) {
  const Vocabulary& vocabulary = trained();
  const auto copy = Vocabulary::deserialize(vocabulary.serialize());
  EXPECT_EQ(copy.size(), vocabulary.size());
  EXPECT_EQ(copy.serialize(), vocabulary.serialize());
  for (const std::string& line : german()) EXPECT_EQ(copy.encode(line), vocabulary.encode(line));
}

TEST_F(WordList, BytesBringBackTheSameWordList) {
  for (const auto joining :
       {nmt::WordJoining::words, nmt::WordJoining::bpe, nmt::WordJoining::sentencepiece}) {
    const auto vocabulary = Vocabulary::from_word_list(write("ha@@\nllo\n\xE2\x96\x81Welt\n"), joining);
    const auto copy = Vocabulary::deserialize(vocabulary.serialize());
    EXPECT_EQ(copy.serialize(), vocabulary.serialize());
    const std::vector<std::int32_t> ids = {3, 4, 5};
    EXPECT_EQ(copy.decode(ids), vocabulary.decode(ids));
  }
}

TEST(VocabularyStorage, DamagedBytesAreRefused) {
  const std::string bytes = trained().serialize();
  EXPECT_NO_THROW(Vocabulary::deserialize(bytes));
  const std::size_t payload = bytes.find('\n') + 1;
  for (const std::string& damaged :
       {std::string(), bytes.substr(0, 10), bytes.substr(0, payload - 1), bytes.substr(0, payload),
        bytes.substr(0, bytes.size() - 1), bytes + "x", "x" + bytes,
        std::string("ddl-nmt-vocabulary 1 words 4\nab\n"), std::string("ddl-nmt-vocabulary 1 other 2\na\n"),
        std::string("ddl-nmt-vocabulary 1 words 0\n"), std::string("ddl-nmt-vocabulary 1 words -2\na\n"),
        std::string("ddl-nmt-vocabulary 1 sentencepiece 3\nabc"),
        std::string("ddl-nmt-vocabulary 1 sentencepiece 0\n")}) {
    SCOPED_TRACE(damaged.substr(0, 60));
    expect_error(ErrorCode::corrupt_data, {""}, [&] { Vocabulary::deserialize(damaged); });
  }
}

TEST(VocabularyStorage, IdsOutOfRangeAreRefused) {
  const Vocabulary& vocabulary = trained();
  const auto size = static_cast<std::int32_t>(vocabulary.size());
  expect_error(ErrorCode::invalid_argument, {"id -1"},
               [&] { static_cast<void>(vocabulary.decode(std::vector<std::int32_t>{-1})); });
  EXPECT_THROW(static_cast<void>(vocabulary.decode(std::vector<std::int32_t>{size})), ddl::Error);
  EXPECT_THROW(static_cast<void>(vocabulary.piece(size)), ddl::Error);
}

// tensorflow/nmt's word lists, with or without the special words, would be read wrongly.
TEST_F(WordList, SpecialWordsAreAddedWhereTheyAreMissing) {
  const auto bare = Vocabulary::from_word_list(write("Hund\nKatze\n"));
  const auto complete = Vocabulary::from_word_list(write("<unk>\n<s>\n</s>\nHund\nKatze\n"));
  EXPECT_EQ(bare.serialize(), complete.serialize());
  EXPECT_EQ(bare.size(), 5U);
  EXPECT_EQ(bare.encode(" Katze  Maus\tHund "), (std::vector<std::int32_t>{4, 0, 3}));
  EXPECT_EQ(bare.decode(std::vector<std::int32_t>{1, 4, 0, 3, 2}), "Katze <unk> Hund");
  EXPECT_EQ(bare.piece(3), "Hund");
}

// Lists with special words of other names, or in other places, could not be used.
TEST_F(WordList, SpecialWordsMayBeNamed) {
  const auto named =
      Vocabulary::from_word_list(write("Hund\nKatze\n"), nmt::WordJoining::words, {"<go>", "<end>", true});
  EXPECT_EQ(named.piece(1), "<go>");
  EXPECT_EQ(named.piece(2), "<end>");
  EXPECT_EQ(named.encode("Katze Maus"), (std::vector<std::int32_t>{4, 0}));

  const auto as_it_is = Vocabulary::from_word_list(write("UNK\nHund\n<end>\nKatze\n<go>\n"),
                                                   nmt::WordJoining::words, {"<go>", "<end>", false});
  EXPECT_EQ(as_it_is.size(), 5U);
  EXPECT_EQ(as_it_is.encode("Maus Hund Katze"), (std::vector<std::int32_t>{0, 3, 4}));
  EXPECT_EQ(as_it_is.decode(std::vector<std::int32_t>{1, 3, 0, 4, 2}), "Hund UNK Katze");
  const auto stored = Vocabulary::deserialize(as_it_is.serialize());
  EXPECT_EQ(stored.serialize(), as_it_is.serialize());
  EXPECT_EQ(stored.piece(2), "<end>");

  const auto refuse = [&](const char* list) {
    return ddl::test::message_of(ddl::ErrorCode::corrupt_data, [&] {
      Vocabulary::from_word_list(write(list), nmt::WordJoining::words, {"<s>", "</s>", false});
    });
  };
  EXPECT_NE(refuse("<unk>\n<s>\nHund\n").find("\"</s>\" is not in the list"), std::string::npos);
  EXPECT_NE(refuse("<s>\n</s>\nHund\n").find("\"<s>\" is not in the list"), std::string::npos);
}

// A source would be cut within a word, or a long word would not be.
TEST(ByteVocabulary, ReadsWordsByteByByte) {
  const Vocabulary bytes = Vocabulary::bytes_of_words();
  EXPECT_EQ(bytes.size(), 261U);
  EXPECT_EQ(bytes.encode(" A \xC3\xA9  "),
            (std::vector<std::int32_t>{3, 5 + 'A', 4, 3, 5 + 0xC3, 5 + 0xA9, 4}));
  EXPECT_EQ(bytes.encode(std::string(60, 'x')).size(), 50U);
  EXPECT_TRUE(bytes.encode("  ").empty());
  std::vector<std::int32_t> ids = bytes.encode("ab c def");
  EXPECT_EQ(bytes.decode(ids), "ab c def");
  EXPECT_FALSE(bytes.cut(ids, 3));
  EXPECT_TRUE(bytes.cut(ids, 2));
  EXPECT_EQ(bytes.decode(ids), "ab c");
  EXPECT_EQ(ids.back(), 4);
  EXPECT_EQ(Vocabulary::deserialize(bytes.serialize()).serialize(), bytes.serialize());
}

TEST_F(WordList, SubwordEntriesAreJoined) {
  const auto bpe = Vocabulary::from_word_list(write("Ap@@\nfel@@\nbaum\nein\n"), nmt::WordJoining::bpe);
  EXPECT_EQ(bpe.decode(std::vector<std::int32_t>{6, 3, 4, 5, 6}), "ein Apfelbaum ein");
  const auto pieces = Vocabulary::from_word_list(write("\xE2\x96\x81"
                                                       "Ap\nfel\n\xE2\x96\x81"
                                                       "ein\n"),
                                                 nmt::WordJoining::sentencepiece);
  EXPECT_EQ(pieces.decode(std::vector<std::int32_t>{5, 3, 4, 5}), "ein Apfel ein");
}

TEST_F(WordList, BadListsAreRefusedWithTheLine) {
  const auto load = [&](const std::string& text) {
    return [this, text] { Vocabulary::from_word_list(write(text)); };
  };
  expect_error(ErrorCode::corrupt_data, {"vocab.de", "empty"}, load(""));
  expect_error(ErrorCode::corrupt_data, {"vocab.de:2", "empty line"}, load("a\n\nb\n"));
  expect_error(ErrorCode::corrupt_data, {"vocab.de:2", "blank"}, load("a\nb c\n"));
  expect_error(ErrorCode::corrupt_data, {"vocab.de:3", "\"a\"", "line 1"}, load("a\nb\na\n"));
  expect_error(ErrorCode::corrupt_data, {"vocab.de:5", "\"<s>\"", "line 2"},
               load("<unk>\n<s>\n</s>\na\n<s>\n"));
  expect_error(ErrorCode::corrupt_data, {"vocab.de:1", "<s>", "must start"}, load("<s>\n</s>\na\n"));
  expect_error(ErrorCode::corrupt_data, {"vocab.de:2", "UTF-8"}, load("a\n\xFF\n"));
  expect_error(ErrorCode::io, {"absent"}, [] { Vocabulary::from_word_list("absent"); });
}

// A hypothesis of several lines would shift all later lines of the output.
TEST_F(WordList, ALineBreakPieceDoesNotBreakTheLine) {
  std::string text;
  for (const std::string& line : german()) text += line + '\n';
  directory_.write("text", text);
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train("--input=" + directory_.file("text") +
                                                         " --model_prefix=" + directory_.file("m") +
                                                         " --vocab_size=330 --byte_fallback --minloglevel=2")
                  .ok());
  const auto vocabulary = Vocabulary::from_sentencepiece_file(directory_.file("m.model"));
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(vocabulary.size()); ++id) {
    if (vocabulary.piece(id) == "<0x0A>" || vocabulary.piece(id) == "<0x0D>") ids.push_back(id);
  }
  ASSERT_EQ(ids.size(), 2U);
  EXPECT_EQ(vocabulary.decode(ids).find_first_of("\r\n"), std::string::npos);
}

// BLEU would compare words with pieces.
TEST_F(WordList, AReferenceIsJoinedLikeAHypothesis) {
  const auto bpe = Vocabulary::from_word_list(write("Ap@@\nfel@@\nbaum\nein\n"), nmt::WordJoining::bpe);
  EXPECT_EQ(bpe.join("ein Ap@@ fel@@  baum Ho@@ lz "), "ein Apfelbaum Holz");
  const auto spm = Vocabulary::from_word_list(write("\xE2\x96\x81"
                                                    "Ap\nfel\n"),
                                              nmt::WordJoining::sentencepiece);
  EXPECT_EQ(spm.join("\xE2\x96\x81"
                     "Ap fel \xE2\x96\x81"
                     "Holz ."),
            "Apfel Holz.");
  EXPECT_EQ(Vocabulary::from_word_list(write("a\n")).join("a@@  b"), "a@@  b");
  EXPECT_EQ(trained().join("a@@  b"), "a@@  b");
}

// Alignments would number the pieces of a list, or bytes, instead of words.
TEST_F(WordList, EntriesKnowTheirWord) {
  const auto bpe = Vocabulary::from_word_list(write("Ap@@\nfel@@\nbaum\nein\n"), nmt::WordJoining::bpe);
  using Numbers = std::vector<std::int32_t>;
  EXPECT_EQ(bpe.word_numbers("ein Ap@@ fel@@  baum Ho@@ lz "), (Numbers{0, 1, 1, 1, 2, 2}));
  EXPECT_EQ(bpe.word_numbers(Numbers{3, 4, 5, 6, 3, 0}), (Numbers{0, 0, 0, 1, 2, 2}));
  const auto spm = Vocabulary::from_word_list(write("\xE2\x96\x81"
                                                    "Ap\nfel\n\xE2\x96\x81\n"),
                                              nmt::WordJoining::sentencepiece);
  EXPECT_EQ(spm.word_numbers(Numbers{3, 4, 5, 4, 3, 5}), (Numbers{0, 0, 1, 1, 2, 2}));
  const auto words = Vocabulary::from_word_list(write("a\n"));
  EXPECT_EQ(words.word_numbers(" b  a@@ a"), (Numbers{0, 1, 2}));
  EXPECT_EQ(Vocabulary::bytes_of_words().word_numbers("ab \xC3\xA4"), (Numbers{0, 0, 0, 0, 1, 1, 1, 1}));
}

// A command of tensorflow/nmt, whose file is a list of pieces, would be refused.
TEST_F(WordList, ASentencePieceFileIsAModelOrAListOfPieces) {
  const auto list =
      Vocabulary::from_sentencepiece_file(write("<unk>\n<s>\n</s>\n\xE2\x96\x81"
                                                "Ap\nfel\n"));
  EXPECT_EQ(list.encode("\xE2\x96\x81"
                        "Ap fel x"),
            (std::vector<std::int32_t>{3, 4, 0}));
  EXPECT_EQ(list.decode(std::vector<std::int32_t>{3, 4, 3}), "Apfel Ap");
  const std::string serialized = trained().serialize();
  const auto path = write(serialized.substr(serialized.find('\n') + 1));
  EXPECT_EQ(Vocabulary::from_sentencepiece_file(path).serialize(), serialized);
  ddl::test::expect_error(ddl::ErrorCode::invalid_argument, {"special pieces of its own", "--sos"}, [&] {
    Vocabulary::from_sentencepiece_file(path, {"<go>", "</s>", true});
  });
}

TEST_F(WordList, AFileThatIsNoModelIsRefused) {
  const std::string file = write(std::string("not a\0model", 11));
  expect_error(ErrorCode::corrupt_data, {"vocab.de", "no SentencePiece model", "copy it again"},
               [&] { Vocabulary::from_sentencepiece_file(file); });
  expect_error(ErrorCode::io, {"absent.model"}, [] { Vocabulary::from_sentencepiece_file("absent.model"); });
}

}  // namespace
