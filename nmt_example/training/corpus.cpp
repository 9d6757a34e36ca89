#include "nmt_example/training/corpus.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "ddl/error.hpp"
#include "nmt_example/data/number_corpus.hpp"
#include "nmt_example/training/setup.hpp"

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

/// The pairs to train on, of the built-in corpus or of files.
NextPair training_pairs(const Options& options) {
  if (options.builtin_corpus > 0) {
    return [generator = NumberCorpusGenerator(CorpusSplit::train, options.random_seed),
            left = options.builtin_corpus,
            is_language_model = options.language_model](std::string& source, std::string& target) mutable {
      if (left == 0) return false;
      --left;
      NumberSentence sentence = generator.next();
      target = std::move(sentence.target);
      source = is_language_model ? target : std::move(sentence.source);
      return true;
    };
  }
  return [text = std::make_shared<ParallelReader>(options.train_prefix, source_suffix(options), options.tgt)](
             std::string& source, std::string& target) { return text->next(source, target); };
}

/// What `training_pairs` are: another hash if they are others. Reads files.
std::uint64_t training_text_hash(const Options& options) {
  if (options.builtin_corpus == 0) {
    return hash_of_text(text_file(options.train_prefix, source_suffix(options)),
                        text_file(options.train_prefix, options.tgt));
  }
  ddl::Fnv hash;
  hash.add_number(static_cast<std::uint64_t>(options.builtin_corpus));
  hash.add_number(options.random_seed);
  hash.add_number(std::uint64_t{options.language_model});
  // Another build's grammar may be another one.
  const ParallelText first = number_corpus(CorpusSplit::train, 1000, options.random_seed);
  for (const auto* side : {&first.source, &first.target}) {
    for (const std::string& line : *side)
      for (const char byte : line) hash.add(static_cast<unsigned char>(byte));
  }
  return hash.value();
}

enum class TextSide : bool { source, target };

/// The lines of these sides of the training text, one side after the other.
std::function<bool(std::string&)> lines_of(const Options& options, std::vector<TextSide> sides) {
  const auto most = options.max_train > 0 ? static_cast<std::size_t>(options.max_train)
                                          : std::numeric_limits<std::size_t>::max();
  return [&options, sides = std::move(sides), most, side = std::size_t{0}, pairs = NextPair(),
          read = std::size_t{0}, other = std::string()](std::string& line) mutable {
    for (; side < sides.size(); ++side, pairs = nullptr, read = 0) {
      if (pairs == nullptr) pairs = training_pairs(options);
      const bool is_source = sides[side] == TextSide::source;
      if (read++ < most && pairs(is_source ? line : other, is_source ? other : line)) return true;
    }
    return false;
  };
}

}  // namespace

const std::string& source_suffix(const Options& options) {
  return options.language_model ? options.tgt : options.src;
}

Texts load_texts(ddl::Context& context, const Options& options) {
  Texts texts;
  context.on_all_ranks("read the texts to score with", [&] {
    if (options.builtin_corpus > 0) {
      texts.dev = number_corpus(CorpusSplit::dev, builtin_dev_sentences, 1);
      texts.test = number_corpus(CorpusSplit::test, builtin_test_sentences, 1);
      if (!options.language_model) return;
      for (ParallelText* text : {&texts.dev, &texts.test}) text->source = text->target;
      return;
    }
    for (const auto& [text, prefix] :
         {std::pair(&texts.dev, &options.dev_prefix), std::pair(&texts.test, &options.test_prefix)}) {
      if (!prefix->empty()) *text = read_parallel_text(*prefix, source_suffix(options), options.tgt);
    }
  });
  return texts;
}

void create_out_dir(const Options& options) {
  const auto fail = [&](const char* what, const std::string& why) {
    throw ddl::Error(ddl::ErrorCode::io, fmt::format("--out_dir={} {}: {}", options.out_dir, what, why));
  };
  std::error_code error;
  std::filesystem::create_directories(options.out_dir, error);
  if (error) fail("cannot be created", error.message());
  if (::access(options.out_dir.c_str(), W_OK) != 0) fail("cannot be written to", std::strerror(errno));
}

Dataset load_training_data(ddl::Context& context, const Options& options,
                           const VocabularyPair& vocabularies) {
  EncodingSettings settings{static_cast<std::size_t>(options.src_max_len),
                            static_cast<std::size_t>(options.tgt_max_len),
                            static_cast<std::size_t>(options.max_train), threads_per_rank(context, options)};
  const Vocabulary &source = vocabularies.source, &target = vocabularies.target;
  std::optional<Dataset> data;
  const auto run = [&](const char* name, const std::function<void()>& work) {
    context.on_all_ranks(name, work, ddl::WorkTime::unlimited);
  };
  if (options.out_dir.empty()) {
    run("encode the corpus",
        [&] { data.emplace(encode(training_pairs(options), source, target, settings)); });
    return std::move(*data);
  }
  const std::filesystem::path path = std::filesystem::path(options.out_dir) / "train.data";
  std::uint64_t key = 0;
  run("encode the corpus", [&] {
    if (context.local_rank() != 0) return;
    key = encoding_key(training_text_hash(options), source, target, settings);
    if (map_dataset(path, key, true)) return;
    settings.threads *= context.local_size();
    create_out_dir(options);
    encode_to_file(path, key, training_pairs(options), source, target, settings);
  });
  key = std::stoull(context.broadcast_string(fmt::format("{}", key)));
  run("map the encoded corpus", [&] {
    data = map_dataset(path, key, false);
    if (data) return;
    throw ddl::Error(
        ddl::ErrorCode::mismatch,
        fmt::format("{} is of other training data than rank 0 read; every host needs the same files",
                    path.string()));
  });
  return std::move(*data);
}

std::string describe(const DatasetFacts& facts) {
  std::string text;
  if (facts.empty_source + facts.empty_target > 0) {
    text += fmt::format("dropped pairs: {} without a source, {} without a target\n", facts.empty_source,
                        facts.empty_target);
  }
  const auto percent = [](std::uint64_t part, std::uint64_t all) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(all);
  };
  if (facts.unknown_source + facts.unknown_target > 0) {
    text += fmt::format("unknown words: {} of the source ({:.2g}%), {} of the target ({:.2g}%)\n",
                        facts.unknown_source, percent(facts.unknown_source, facts.source_tokens),
                        facts.unknown_target, percent(facts.unknown_target, facts.target_tokens));
  }
  constexpr double unusual = 3;
  std::string lines;
  for (const DatasetFacts::Lengths& pair : facts.uneven) {
    if (pair.ratio() < unusual) break;
    lines += fmt::format("{} {} ({}:{})", lines.empty() ? "" : ",", pair.line, pair.source, pair.target);
  }
  if (!lines.empty()) text += fmt::format("the most uneven pairs, by line (words of both sides):{}\n", lines);
  return text;
}

std::optional<VocabularyPair> vocabularies_from_files(const Options& options) {
  if (options.vocab_prefix.empty()) return std::nullopt;
  Vocabulary source = options.use_char_encode ? Vocabulary::bytes_of_words()
                                              : vocabulary_from_file(options, source_suffix(options));
  Vocabulary target = options.share_vocab ? source : vocabulary_from_file(options, options.tgt);
  return VocabularyPair{std::move(source), std::move(target)};
}

VocabularyPair make_vocabularies(ddl::Context& context, const Options& options) {
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
    const auto trained = [&](std::vector<TextSide> sides) {
      return Vocabulary::train_on_lines(lines_of(options, std::move(sides)),
                                        static_cast<std::size_t>(options.vocab_size), settings)
          .serialize();
    };
    if (options.language_model) {
      source = target = trained({TextSide::target});
    } else if (options.share_vocab) {
      source = target = trained({TextSide::source, TextSide::target});
    } else {
      source =
          options.use_char_encode ? Vocabulary::bytes_of_words().serialize() : trained({TextSide::source});
      target = trained({TextSide::target});
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
                  text, dataset.size(), context.size(),
                  dataset.facts().empty_source + dataset.facts().empty_target));
}

void check_same_data(ddl::Context& context, const Dataset& dataset) {
  const std::string mine = fmt::format("{} pairs, hash {:016x}", dataset.size(), dataset.facts().hash);
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
