#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "nmt_example/data/vocabulary.hpp"
#include "nmt_example/inference/beam_search.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// Translates lines of text with a model: encodes them into subwords, searches, and decodes the result.
class Translator {
 public:
  Translator(Model& model, const Vocabulary& source, const Vocabulary& target, const Options& options);

  /// Line i of the result is the translation of line i; an empty line stays empty. Batches lines of similar
  /// length, `--infer_batch_size` at a time.
  std::vector<std::string> translate(std::span<const std::string> lines);

  /// The same, with the lines spread over all ranks; every rank gets all translations. Collective.
  std::vector<std::string> translate(ddl::Context& context, std::span<const std::string> lines);

 private:
  Model& model_;
  const Vocabulary& source_;
  const Vocabulary& target_;
  SearchSettings settings_;
  std::int64_t batch_size_;
  std::int64_t source_max_;
};

}  // namespace nmt
