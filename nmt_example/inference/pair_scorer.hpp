#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "nmt_example/data/vocabulary.hpp"
#include "nmt_example/model/model.hpp"

namespace nmt {

struct PairScore {
  double log_probability = 0;  ///< Of the translation and its end, given the source; natural logarithm.
  std::int64_t words = 0;      ///< Words or pieces of the translation, and </s>.
  std::string alignment = {};  ///< As `align` gives it, if asked for.
};

/// Computes how probable translations are. All arguments of the constructor must outlive it.
class PairScorer {
 public:
  /// `batch_size`: pairs at a time; fewer where they would need more than `largest_workspace`. `aligns`: also
  /// aligns their words; the model must attend.
  PairScorer(Model& model, const Vocabulary& source, const Vocabulary& target, std::int64_t batch_size,
             bool aligns = false)
      : model_(model), source_(source), target_(target), batch_size_(batch_size), aligns_(aligns) {}

  /// Scores sources[i] with targets[i], in batches of like length, spread over all ranks; every rank gets all
  /// scores. A source without words counts as </s>. A language model does not see the source. There were
  /// `before` pairs of the same text. Collective; throws `unsupported` for a pair that alone needs more
  /// memory.
  std::vector<PairScore> score(ddl::Context& context, std::span<const std::string> sources,
                               std::span<const std::string> targets, std::size_t before = 0) const;

 private:
  Model& model_;
  const Vocabulary& source_;
  const Vocabulary& target_;
  std::int64_t batch_size_;
  bool aligns_;
};

}  // namespace nmt
