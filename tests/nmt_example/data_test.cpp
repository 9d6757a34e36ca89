#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <sstream>
#include <string>

#include "ddl/error.hpp"
#include "nmt_example/data/embedding_vectors.hpp"
#include "nmt_example/data/encoding.hpp"
#include "nmt_example/data/line_reader.hpp"
#include "nmt_example/data/number_corpus.hpp"
#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/data/vocabulary.hpp"
#include "nmt_example/text/utf8.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace {

namespace fs = std::filesystem;
using ddl::ErrorCode;
using ddl::test::expect_error;

class Files : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return directory_.file(name); }
  void write(const std::string& name, const std::string& bytes) const { directory_.write(name, bytes); }
  static std::string gzip(const std::string& text) {
    z_stream stream{};
    EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    std::string result(deflateBound(&stream, text.size()) + 64, '\0');
    std::string input = text;
    stream.next_in = reinterpret_cast<Bytef*>(input.data());
    stream.avail_in = static_cast<uInt>(input.size());
    stream.next_out = reinterpret_cast<Bytef*>(result.data());
    stream.avail_out = static_cast<uInt>(result.size());
    EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    result.resize(stream.total_out);
    deflateEnd(&stream);
    return result;
  }

  ddl::test::TemporaryDirectory directory_;
};

using ParallelTextFiles = Files;
using Datasets = Files;
using GivenVectors = Files;

// Words would get others' vectors, or a damaged file would train a model without a word.
TEST_F(GivenVectors, AreThoseOfTheVocabulary) {
  write("list", "a\nb\nc\n");
  const nmt::Vocabulary vocabulary = nmt::Vocabulary::from_word_list(path("list"));
  write("v", "4 2\nc 5 6\nother 1 2\na 0.5 -1e2\r\nb 3 4\n");
  const nmt::EmbeddingVectors vectors = nmt::read_embedding_vectors(path("v"), vocabulary);
  EXPECT_EQ(vectors.size, 2);
  EXPECT_EQ(vectors.values, (std::vector<float>{0.5f, -100, 3, 4, 5, 6}));

  const auto error = [&](ErrorCode code, const std::string& text, const std::string& part) {
    write("v", text);
    const std::string message =
        ddl::test::message_of(code, [&] { nmt::read_embedding_vectors(path("v"), vocabulary); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  error(ErrorCode::corrupt_data, "a 1 2\nb 1 x\n", "line 2");
  error(ErrorCode::corrupt_data, "a 1 2\nb 1 2 3\nc 1 2\n", "line 2: a vector of 3 numbers, expected 2");
  error(ErrorCode::corrupt_data, "a 1 2\nc 1 2\n",
        "no vector for 1 of the vocabulary's 3 words, for instance 'b'");
  error(ErrorCode::corrupt_data, "", "no vector for 3");
  const std::string missing =
      ddl::test::message_of(ErrorCode::io, [&] { nmt::read_embedding_vectors(path("nothing"), vocabulary); });
  EXPECT_NE(missing.find("nothing"), std::string::npos) << missing;
}

TEST_F(ParallelTextFiles, PlainFilesKeepTheirLines) {
  write("t.en", "\xEF\xBB\xBFone\r\n\ntwo  words\nlast without newline");
  write("t.de", "eins\n\nzwei  W\xC3\xB6rter\r\nletzte\n");
  const auto text = nmt::read_parallel_text(path("t"), "en", "de");
  EXPECT_EQ(text.source, (std::vector<std::string>{"one", "", "two  words", "last without newline"}));
  EXPECT_EQ(text.target, (std::vector<std::string>{"eins", "", "zwei  W\xC3\xB6rter", "letzte"}));
}

// Files of several gzip members, such as those of Multi30k joined with cat, would be truncated.
TEST_F(ParallelTextFiles, GzipWithSeveralMembersIsReadWhole) {
  std::string half;
  for (int i = 0; i < 20'000; ++i) half += "line " + std::to_string(i) + "\n";
  write("t.en.gz", gzip(half) + gzip(half));
  write("t.de", half + half);
  const auto text = nmt::read_parallel_text(path("t"), "en", "de");
  EXPECT_EQ(text.size(), 40'000U);
  EXPECT_EQ(text.source, text.target);
}

TEST_F(ParallelTextFiles, MissingFilesAreNamedBothWays) {
  write("t.en", "x\n");
  expect_error(ErrorCode::io, {"t.de", "t.de.gz"}, [&] { nmt::read_parallel_text(path("t"), "en", "de"); });
}

TEST_F(ParallelTextFiles, DamagedInputIsRefusedWithItsPlace) {
  const auto read = [&] { nmt::read_parallel_text(path("t"), "en", "de"); };
  write("t.de", "x\ny\nz\n");
  write("t.en", "");
  expect_error(ErrorCode::corrupt_data, {"t.en", "empty"}, read);
  write("t.en", "a\nb\n");
  expect_error(ErrorCode::corrupt_data, {"t.en has 2", "t.de has 3"}, read);
  write("t.en", "a\nbc\xFF\nc\n");
  expect_error(ErrorCode::corrupt_data, {"t.en:2", "UTF-8", "byte 2", "0xff"}, read);
  write("t.en", std::string("a\nb\nc\0d\n", 8));
  expect_error(ErrorCode::corrupt_data, {"t.en:3", "NUL", "byte 1"}, read);
  write("t.en", "a\n" + std::string(nmt::max_line_bytes + 1, 'x') + "\nc\n");
  expect_error(ErrorCode::corrupt_data, {"t.en:2", "longer than 1048576"}, read);
  write("t.en", "a\n" + std::string(nmt::max_line_bytes, 'x') + "\nc\n");
  EXPECT_NO_THROW(read());
  fs::remove(path("t.en"));
  fs::create_directory(path("t.en"));
  expect_error(ErrorCode::io, {"t.en", "directory"}, read);
}

TEST_F(ParallelTextFiles, DamagedGzipIsRefused) {
  const auto read = [&] { nmt::read_parallel_text(path("t"), "en", "de"); };
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i * 7919 % 10'007) + "\n";
  write("t.de", text);
  const std::string zipped = gzip(text);
  write("t.en.gz", zipped.substr(0, zipped.size() - 1));
  expect_error(ErrorCode::corrupt_data, {"t.en.gz", "ends in the middle"}, read);
  write("t.en.gz", zipped.substr(0, zipped.size() / 2));
  expect_error(ErrorCode::corrupt_data, {"t.en.gz"}, read);
  std::string altered = zipped;
  altered[altered.size() / 2] = static_cast<char>(altered[altered.size() / 2] ^ 0x55);
  write("t.en.gz", altered);
  expect_error(ErrorCode::corrupt_data, {"t.en.gz"}, read);
  write("t.en.gz", "not gzip\n");
  expect_error(ErrorCode::corrupt_data, {"t.en.gz", "gzip"}, read);
}

TEST_F(ParallelTextFiles, LinesToTranslateKeepEmptyOnes) {
  std::istringstream stream("a\n\nb");
  EXPECT_EQ(nmt::read_lines(stream, "standard input"), (std::vector<std::string>{"a", "", "b"}));
  std::istringstream nothing("");
  EXPECT_TRUE(nmt::read_lines(nothing, "standard input").empty());
  write("in.gz", gzip("x\n\n"));
  EXPECT_EQ(nmt::read_lines(path("in.gz")), (std::vector<std::string>{"x", ""}));
  expect_error(ErrorCode::io, {"absent.txt"}, [&] { nmt::read_lines(path("absent.txt")); });
}

TEST(Utf8, IllFormedSequencesAreFoundWhereTheyStart) {
  for (const std::string good :
       {"", "abc", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    EXPECT_FALSE(nmt::first_invalid_utf8(good)) << good;
  }
  for (const std::string bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xE2\x82", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3(", "\xFE"}) {
    EXPECT_EQ(nmt::first_invalid_utf8("ab" + bad), 2U);
  }
}

TEST_F(Datasets, EncodeDropsEmptySidesAndCutsLongOnes) {
  write("v", "a\nb\nc\n");
  const auto words = nmt::Vocabulary::from_word_list(path("v"));
  const nmt::ParallelText text{{"a b", "", "a a a a a", "c"}, {"b", "a", "c c", "a b c a"}};
  const auto data = nmt::encode(text, words, words, 3, 3);
  ASSERT_EQ(data.size(), 3U);
  EXPECT_EQ(data.facts().empty_source, 1U);
  EXPECT_EQ(data.facts().empty_target, 0U);
  EXPECT_EQ(data.facts().cut, 2U);
  EXPECT_TRUE(std::ranges::equal(data.source(1), std::vector{3, 3, 3}));
  EXPECT_TRUE(std::ranges::equal(data.target(2), std::vector{3, 4, 5}));
  EXPECT_EQ(data.lengths(), (std::vector<std::uint32_t>{3, 5, 4}));
  EXPECT_EQ(data.longest_source(), 3U);
  EXPECT_EQ(data.tokens(), 12U);
  EXPECT_EQ(nmt::encode(text, words, words, 0, 0).longest_source(), 5U);
  expect_error(ErrorCode::invalid_argument, {"none of the 1"}, [&] {
    nmt::encode({{""}, {"a"}}, words, words, 3, 3);
  });
  expect_error(ErrorCode::invalid_argument, {"1 source and 0 target"}, [&] {
    nmt::encode({{"a"}, {}}, words, words, 3, 3);
  });
}

// Batches would be padded needlessly.
TEST_F(Datasets, BucketsFollowTheLongerSide) {
  write("v", "a\n");
  const auto words = nmt::Vocabulary::from_word_list(path("v"));
  const auto sentence = [](std::size_t length) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text += "a ";
    return text;
  };
  nmt::ParallelText text;
  for (const auto& [source, target] : std::vector<std::pair<std::size_t, std::size_t>>{
           {1, 1}, {9, 9}, {10, 1}, {1, 19}, {20, 20}, {49, 1}, {50, 50}, {1, 70}}) {
    text.source.push_back(sentence(source));
    text.target.push_back(sentence(target));
  }
  const auto data = nmt::encode(text, words, words, 50, 50);
  EXPECT_EQ(data.buckets(5), (std::vector<std::uint32_t>{0, 0, 1, 1, 2, 4, 4, 4}));
  EXPECT_EQ(data.buckets(1), std::vector<std::uint32_t>(8, 0));
  EXPECT_EQ(data.buckets(3), (std::vector<std::uint32_t>{0, 0, 0, 1, 1, 2, 2, 2}));  // w = 17
  EXPECT_EQ(nmt::encode(text, words, words, 0, 0).buckets(5),
            (std::vector<std::uint32_t>{0, 0, 1, 1, 2, 4, 4, 4}));
  EXPECT_THROW(data.buckets(0), ddl::Error);
}

// Sentences from a file would be others than those of the text, or of another text, or damaged.
TEST_F(Datasets, AFileIsWhatItWasMadeFrom) {
  const auto text = nmt::number_corpus(nmt::CorpusSplit::train, 9000, 1);
  const auto source = nmt::Vocabulary::train(text.source, 100),
             target = nmt::Vocabulary::train(text.target, 120);
  const nmt::EncodingSettings settings{40, 30, 0, 3};
  const auto expected = nmt::encode(text, source, target, 40, 30);
  const std::string file = path("train.data");
  nmt::encode_to_file(file, 7, nmt::pairs_of(text), source, target, settings);
  const auto found = nmt::map_dataset(file, 7, true).value();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(std::ranges::equal(found.source(i), expected.source(i))) << i;
    ASSERT_TRUE(std::ranges::equal(found.target(i), expected.target(i))) << i;
  }
  EXPECT_EQ(found.lengths(), expected.lengths());
  EXPECT_EQ(found.buckets(5), expected.buckets(5));
  EXPECT_EQ(found.facts().hash, expected.facts().hash);
  EXPECT_FALSE(nmt::map_dataset(file, 8, true)) << "of another key";
  EXPECT_FALSE(nmt::map_dataset(path("none"), 7, true));

  const std::string bytes = ddl::test::contents(file);
  for (const std::size_t place : {std::size_t{0}, std::size_t{17}, std::size_t{5000}, bytes.size() - 9}) {
    std::string damaged = bytes;
    damaged[place] = static_cast<char>(damaged[place] ^ 1);
    write("train.data", damaged);
    EXPECT_FALSE(nmt::map_dataset(file, 7, true)) << "byte " << place;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, bytes.size() - 1}) {
    write("train.data", bytes.substr(0, size));
    EXPECT_FALSE(nmt::map_dataset(file, 7, true)) << "cut to " << size;
  }
  expect_error(ErrorCode::io, {"nowhere", "cannot be written"}, [&] {
    nmt::encode_to_file(path("nowhere/train.data"), 7, nmt::pairs_of(text), source, target, settings);
  });
}

// A run would train on an older text, or with other vocabularies, than it is given.
TEST_F(Datasets, KeysAreOfTextVocabulariesAndLengths) {
  write("s", "a\n");
  write("t", "b\n");
  write("v", "a\nb\n");
  write("w", "b\na\n");
  const auto v = nmt::Vocabulary::from_word_list(path("v")), w = nmt::Vocabulary::from_word_list(path("w"));
  const auto key = [&](const nmt::Vocabulary& source, const nmt::Vocabulary& target,
                       const nmt::EncodingSettings& settings) {
    return nmt::encoding_key(nmt::hash_of_text(path("s"), path("t")), source, target, settings);
  };
  std::set<std::uint64_t> keys = {key(v, v, {}),        key(v, w, {}),        key(w, v, {}),
                                  key(v, v, {5, 0, 0}), key(v, v, {0, 5, 0}), key(v, v, {0, 0, 5})};
  EXPECT_EQ(key(v, v, {0, 0, 0, 4}), key(v, v, {})) << "threads change nothing";
  write("s", "b\n");
  keys.insert(key(v, v, {}));
  write("t", "a\n");
  keys.insert(key(v, v, {}));
  write("t", "a\n\n");
  keys.insert(key(v, v, {}));
  EXPECT_EQ(keys.size(), 9U);
}

// A person would not learn that pairs are dropped, or that lines do not belong together.
TEST_F(Datasets, WhatIsUnusualIsNoted) {
  write("v", "a\nb\n");
  const auto words = nmt::Vocabulary::from_word_list(path("v"));
  nmt::ParallelText text{{"a", "", "a b", "a", "x a"}, {"a b", "a", "", "a b a b a", "a"}};
  const auto facts = nmt::encode(text, words, words, 3, 3).facts();
  EXPECT_EQ(facts.pairs, 3U);
  EXPECT_EQ(facts.empty_source, 1U);
  EXPECT_EQ(facts.empty_target, 1U);
  EXPECT_EQ(facts.cut, 1U);
  EXPECT_EQ(facts.unknown_source, 1U);
  EXPECT_EQ(facts.unknown_target, 0U);
  EXPECT_EQ(facts.source_tokens, 4U);
  EXPECT_EQ(facts.uneven[0].line, 4U);
  EXPECT_EQ(facts.uneven[0].ratio(), 5);
  EXPECT_EQ(facts.uneven[1].line, 1U);
  EXPECT_EQ(facts.uneven[2].line, 5U);
  EXPECT_EQ(facts.uneven[3].line, 0U) << "there are three pairs";
}

// Batches by words would be cut for other lengths than the samples have.
TEST_F(Datasets, GroupsHaveTheirLongestSides) {
  write("v", "a\nb\n");
  const auto words = nmt::Vocabulary::from_word_list(path("v"));
  const auto data = nmt::encode({{"a", "a b a", "a a a a a a", "b"}, {"b b", "a", "a", "a b a b a b a"}},
                                words, words, 10, 10);
  const auto groups = data.groups(2, 10);  // each of 5 lengths
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].samples, 2U);
  EXPECT_EQ(groups[0].longest_source, 3U);
  EXPECT_EQ(groups[0].longest_target, 2U);
  EXPECT_EQ(groups[0].longest, 4U);
  EXPECT_EQ(groups[1].longest_source, 6U);
  EXPECT_EQ(groups[1].longest_target, 7U);
  EXPECT_EQ(groups[1].longest, 8U);
  EXPECT_EQ(data.groups(2, 6)[1].samples, 1U);
  EXPECT_EQ(data.groups(2, 2).size(), 1U) << "groups without samples";
}

TEST_F(Datasets, BatchesAreTimeMajorAndPaddedWithEos) {
  write("v", "a\nb\nc\n");
  const auto words = nmt::Vocabulary::from_word_list(path("v"));
  const auto data = nmt::encode({{"a b c", "c", "b"}, {"b", "a c", "c"}}, words, words, 50, 50);
  nmt::Batch batch;
  nmt::fill_batch(data, std::vector<std::size_t>{1, 0}, batch);
  constexpr std::int32_t a = 3, b = 4, c = 5, s = 1, e = 2;
  EXPECT_EQ(batch.size(), 2U);
  EXPECT_EQ(batch.source_steps, 3U);
  EXPECT_EQ(batch.target_steps, 3U);
  EXPECT_EQ(batch.source, (std::vector{c, a, e, b, e, c}));
  EXPECT_EQ(batch.source_lengths, (std::vector{1, 3}));
  EXPECT_EQ(batch.target_in, (std::vector{s, s, a, b, c, e}));
  EXPECT_EQ(batch.target_out, (std::vector{a, b, c, e, e, e}));
  EXPECT_EQ(batch.target_lengths, (std::vector{3, 2}));
  EXPECT_EQ(batch.samples, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(batch.target_tokens, 5U);
  EXPECT_EQ(batch.words, 9U);
  nmt::fill_batch(data, std::vector<std::size_t>{}, batch);
  EXPECT_EQ(
      batch.size() + batch.source.size() + batch.target_in.size() + batch.target_out.size() + batch.words,
      0U);
  expect_error(ErrorCode::invalid_argument, {"sample 3"},
               [&] { nmt::fill_batch(data, std::vector<std::size_t>{3}, batch); });
}

// Every training step would allocate memory.
TEST_F(Datasets, FillingAReservedBatchKeepsItsMemory) {
  write("v", "a\nb\n");
  const auto words = nmt::Vocabulary::from_word_list(path("v"));
  const auto data = nmt::encode({{"a", "a b a"}, {"b b b b", "a"}}, words, words, 50, 50);
  nmt::Batch batch;
  batch.reserve(4, data.longest_source(), data.longest_target());
  const auto places = [&] {
    return std::vector<const void*>{batch.source.data(),         batch.target_in.data(),
                                    batch.target_out.data(),     batch.source_lengths.data(),
                                    batch.target_lengths.data(), batch.samples.data()};
  };
  nmt::fill_batch(data, std::vector<std::size_t>{0}, batch);
  const auto before = places();
  nmt::fill_batch(data, std::vector<std::size_t>{0, 1, 0, 1}, batch);
  nmt::fill_batch(data, std::vector<std::size_t>{1, 1}, batch);
  EXPECT_EQ(places(), before);
}

/// The directory of Multi30k: DDL_TEST_DATA/multi30k, or next to the checkout.
std::optional<std::string> find_multi30k() {
  std::vector<fs::path> places;
  if (const char* data = std::getenv("DDL_TEST_DATA")) places.emplace_back(fs::path(data) / "multi30k");
  places.emplace_back(fs::path(DDL_SOURCE_DIR) / "../shared/data/multi30k");
  for (const fs::path& place : places) {
    if (fs::exists(place / "val.en.gz")) return place.string();
  }
  return std::nullopt;
}

TEST(Multi30k, ValidationSetSurvivesEncodingAndDecoding) {
  const auto place = find_multi30k();
  if (!place) GTEST_SKIP() << "no Multi30k: set DDL_TEST_DATA to the directory that holds multi30k/val.en.gz";
  const auto text = nmt::read_parallel_text(*place + "/val", "en", "de");
  ASSERT_EQ(text.size(), 1014U);
  const auto vocabulary = nmt::Vocabulary::train(text.target, 1000);
  for (const std::string& sentence : text.target) {
    std::istringstream words(sentence);
    std::string squeezed;
    for (std::string word; words >> word;) squeezed += (squeezed.empty() ? "" : " ") + word;
    EXPECT_EQ(vocabulary.decode(vocabulary.encode(sentence)), squeezed);
  }
}

}  // namespace
