#include "nmt_example/training/corpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ddl/error.hpp"
#include "ddl/hash.hpp"
#include "nmt_example/data/number_corpus.hpp"

namespace nmt {
namespace {

constexpr std::size_t builtin_dev_sentences = 500;
constexpr std::size_t builtin_test_sentences = 1000;

Vocabulary vocabulary_from_file(const Options& options, const std::string& suffix) {
  const std::string path = options.vocab_prefix + "." + suffix;
  const SpecialWords special{options.sos, options.eos, options.check_special_token};
  if (options.subword_option == SubwordOption::spm) return Vocabulary::from_sentencepiece_file(path, special);
  return Vocabulary::from_word_list(
      path, options.subword_option == SubwordOption::bpe ? WordJoining::bpe : WordJoining::words, special);
}

}  // namespace

const std::string& source_suffix(const Options& options) {
  return options.language_model ? options.tgt : options.src;
}

Texts load_texts(ddl::Context& context, const Options& options) {
  Texts texts;
  const auto only_first = [&](ParallelText& text) {
    const auto most = static_cast<std::size_t>(options.max_train);
    if (most == 0 || text.size() <= most) return;
    text.source.resize(most);
    text.target.resize(most);
  };
  context.on_all_ranks("read the corpus", [&] {
    if (options.builtin_corpus > 0) {
      texts.train = number_corpus(CorpusSplit::train, static_cast<std::size_t>(options.builtin_corpus),
                                  options.random_seed);
      only_first(texts.train);
      texts.dev = number_corpus(CorpusSplit::dev, builtin_dev_sentences, 1);
      texts.test = number_corpus(CorpusSplit::test, builtin_test_sentences, 1);
      if (!options.language_model) return;
      for (ParallelText* text : {&texts.train, &texts.dev, &texts.test}) text->source = text->target;
      return;
    }
    texts.train = read_parallel_text(options.train_prefix, source_suffix(options), options.tgt);
    only_first(texts.train);
    if (!options.dev_prefix.empty())
      texts.dev = read_parallel_text(options.dev_prefix, source_suffix(options), options.tgt);
    if (!options.test_prefix.empty())
      texts.test = read_parallel_text(options.test_prefix, source_suffix(options), options.tgt);
  });
  return texts;
}

std::optional<VocabularyPair> vocabularies_from_files(const Options& options) {
  if (options.vocab_prefix.empty()) return std::nullopt;
  Vocabulary source = options.use_char_encode ? Vocabulary::bytes_of_words()
                                              : vocabulary_from_file(options, source_suffix(options));
  Vocabulary target = options.share_vocab ? source : vocabulary_from_file(options, options.tgt);
  return VocabularyPair{std::move(source), std::move(target)};
}

VocabularyPair make_vocabularies(ddl::Context& context, const Options& options, const ParallelText& train) {
  std::string source;
  std::string target;
  context.root_only("make the vocabulary", [&] {
    if (const auto files = vocabularies_from_files(options)) {
      source = files->source.serialize();
      target = files->target.serialize();
      return;
    }
    VocabularyTraining settings;
    settings.type = options.subword_option == SubwordOption::bpe ? SubwordType::bpe : SubwordType::unigram;
    settings.seed = options.random_seed;
    const auto size = static_cast<std::size_t>(options.vocab_size);
    if (options.language_model) {
      source = target = Vocabulary::train(train.target, size, settings).serialize();
    } else if (options.share_vocab) {
      std::vector<std::string> both = train.source;
      both.insert(both.end(), train.target.begin(), train.target.end());
      source = target = Vocabulary::train(both, size, settings).serialize();
    } else {
      source = (options.use_char_encode ? Vocabulary::bytes_of_words()
                                        : Vocabulary::train(train.source, size, settings))
                   .serialize();
      target = Vocabulary::train(train.target, size, settings).serialize();
    }
  });
  source = context.broadcast_string(source);
  target = context.broadcast_string(target);
  return {Vocabulary::deserialize(source), Vocabulary::deserialize(target)};
}

GivenEmbeddings given_embeddings(const Options& options, const VocabularyPair& vocabularies) {
  GivenEmbeddings given;
  if (options.embed_prefix.empty()) return given;
  if (options.src_embed_size != 0 || options.tgt_embed_size != 0) {
    throw ddl::Error(
        ddl::ErrorCode::invalid_argument,
        fmt::format(
            "--embed_prefix={} with --src_embed_size={} and --tgt_embed_size={}: the files of vectors have "
            "sizes of their own, and a side without one has --num_units; leave the sizes out",
            options.embed_prefix, options.src_embed_size, options.tgt_embed_size));
  }
  const std::string source = options.embed_prefix + "." + source_suffix(options);
  const std::string target = options.embed_prefix + "." + options.tgt;
  const bool reads_source = !options.language_model && std::filesystem::exists(source);
  const bool reads_target =
      (options.language_model || !options.share_vocab) && std::filesystem::exists(target);
  if (!reads_source && !reads_target) {
    throw ddl::Error(ddl::ErrorCode::io, fmt::format("--embed_prefix={}: there is neither {} nor {}",
                                                     options.embed_prefix, source, target));
  }
  if (reads_source) given.source = read_embedding_vectors(source, vocabularies.source);
  if (reads_target) given.target = read_embedding_vectors(target, vocabularies.target);
  return given;
}

void check_sampled_words(const Options& options, const VocabularyPair& vocabularies) {
  if (static_cast<std::size_t>(options.num_sampled_softmax) <= vocabularies.target.size()) return;
  throw ddl::Error(
      ddl::ErrorCode::invalid_argument,
      fmt::format(
          "--num_sampled_softmax={}: the target's vocabulary has {} words; expected at most that many, or 0 "
          "for a softmax over all",
          options.num_sampled_softmax, vocabularies.target.size()));
}

void check_enough_for_ranks(const ddl::Context& context, const Options& options, const Dataset& dataset) {
  if (dataset.size() >= static_cast<std::size_t>(context.size())) return;
  const std::string text =
      options.builtin_corpus > 0
          ? fmt::format("--builtin_corpus={}", options.builtin_corpus)
          : fmt::format("{0}.{1} and {0}.{2}", options.train_prefix, source_suffix(options), options.tgt);
  throw ddl::Error(
      ddl::ErrorCode::invalid_argument,
      fmt::format("{}: {} sentence pairs to train on for {} ranks ({} more have an empty side); every rank "
                  "needs at least one: give more text, or start fewer ranks with mpirun -np",
                  text, dataset.size(), context.size(), dataset.dropped()));
}

void check_same_data(ddl::Context& context, const Dataset& dataset) {
  ddl::Fnv hash;
  for (std::size_t i = 0; i < dataset.size(); ++i) {
    for (const auto side : {dataset.source(i), dataset.target(i)}) {
      for (const std::int32_t id : side) hash.add(static_cast<std::uint32_t>(id));
      hash.add(0xffffffff);
    }
  }
  const std::string mine = fmt::format("{} pairs, hash {:016x}", dataset.size(), hash.value());
  const std::string roots = context.broadcast_string(mine);
  context.on_all_ranks("compare the training data", [&] {
    if (mine != roots) {
      throw ddl::Error(
          ddl::ErrorCode::mismatch,
          fmt::format("this rank read other training data ({}) than rank 0 ({}); every host needs the "
                      "same files",
                      mine, roots));
    }
  });
}

}  // namespace nmt
