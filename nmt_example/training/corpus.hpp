#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ddl/context.hpp"
#include "nmt_example/data/embedding_vectors.hpp"
#include "nmt_example/data/encoding.hpp"
#include "nmt_example/data/vocabulary.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// Both languages' vocabularies; with --share_vocab the same one twice.
struct VocabularyPair {
  Vocabulary source;
  Vocabulary target;
};

/// The texts to score with, of the built-in corpus or of the files named by the options; they may be empty.
struct Texts {
  ParallelText dev, test;
};

/// Suffix of the files that a model reads as its source: a language model's are the target's.
const std::string& source_suffix(const Options& options);

/// Every rank reads or generates the texts. Collective; errors are agreed.
Texts load_texts(ddl::Context& context, const Options& options);

/// Throws `io`. Not collective.
void create_out_dir(const Options& options);

/// The sentence pairs to train on, encoded. With --out_dir, one rank of a host encodes them into
/// out_dir/train.data, which all ranks there map into memory, and which later runs take if it was made from
/// the same text, vocabularies and lengths. Collective; errors are agreed.
Dataset load_training_data(ddl::Context& context, const Options& options, const VocabularyPair& vocabularies);
/// For people: how many pairs are dropped or cut, and what is unusual about the others; lines.
std::string describe(const DatasetFacts& facts);

/// The vocabularies of --vocab_prefix, if it is set.
std::optional<VocabularyPair> vocabularies_from_files(const Options& options);

/// From --vocab_prefix, or trained by rank 0 on the text for all. Collective; errors are agreed.
VocabularyPair make_vocabularies(ddl::Context& context, const Options& options);

/// The vectors of --embed_prefix; a side without a file, and with --share_vocab the target, has none.
struct GivenEmbeddings {
  std::optional<EmbeddingVectors> source, target;
};
/// Not collective. Throws `io` if there is neither file, `invalid_argument` if the options give sizes too,
/// and as `read_embedding_vectors`.
GivenEmbeddings given_embeddings(const Options& options, const VocabularyPair& vocabularies);

/// Throws `invalid_argument` if --num_sampled_softmax is more than there are words. Not collective.
void check_sampled_words(const Options& options, const VocabularyPair& vocabularies);
/// Throws `invalid_argument` if there are fewer sentence pairs than ranks. Not collective.
void check_enough_for_ranks(const ddl::Context& context, const Options& options, const Dataset& dataset);
/// Throws `mismatch` if ranks have read different files, and so would train on different data. Collective.
void check_same_data(ddl::Context& context, const Dataset& dataset);

}  // namespace nmt
