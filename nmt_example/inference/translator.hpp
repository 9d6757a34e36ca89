#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "nmt_example/data/vocabulary.hpp"
#include "nmt_example/inference/beam_search.hpp"
#include "nmt_example/inference/sampling.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// Translates lines of text with a model, or with several together: encodes them into subwords, searches, and
/// decodes the result.
class Translator {
 public:
  /// The models read and write the same words, and have one backend.
  Translator(std::vector<Model*> models, const Vocabulary& source, const Vocabulary& target,
             const Options& options);

  /// The translations of line i are elements i * each to i * each + each - 1 of the result: the best of the
  /// beam, or as many samples; with `--scores` followed by a tab and the score, with `--alignments` by a tab
  /// and what `align` gives. An empty line stays empty. Batches lines of similar length: at most
  /// `--infer_batch_size`, and as many as `largest_workspace` has room for. Throws `unsupported` for a line
  /// that alone needs more.
  std::vector<std::string> translate(std::span<const std::string> lines, int each = 1);

  /// The same, with the lines spread over all ranks; every rank gets all translations. There were `before`
  /// lines of the same text. The first time that `--src_max_len_infer` cuts lines, a notice says how many,
  /// and the first one's number. Collective.
  std::vector<std::string> translate(ddl::Context& context, std::span<const std::string> lines, int each = 1,
                                     std::size_t before = 0);

 private:
  /// Lines `first`, `first` + `stride`, ... of a text, counted from 1.
  std::vector<std::string> translate(std::span<const std::string> lines, int each, std::size_t first,
                                     std::size_t stride);

  std::vector<Model*> models_;
  const Vocabulary& source_;
  const Vocabulary& target_;
  SearchSettings settings_;
  SamplingSettings sampling_;
  bool samples_;  // instead of searching
  bool writes_scores_;
  bool writes_alignments_;
  std::int64_t batch_size_;
  std::int64_t source_max_;
  // Of the last translation on this rank.
  std::size_t cut_ = 0;
  std::size_t first_cut_ = 0;
  bool noticed_ = false;
};

}  // namespace nmt
