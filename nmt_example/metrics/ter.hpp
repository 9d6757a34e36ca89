#pragma once

#include <span>
#include <string>

namespace nmt {

/// Translation edit rate (Snover et al. 2006), equal to sacreBLEU's with its default settings: insertions,
/// deletions, substitutions and shifts of words for each 100 words of the references, in lower case. 0 or
/// more; smaller is better. The search for shifts is Tercom's: greedy, over at most 10 equal words that move
/// by at most 50, 1,000 candidates a line. `lines` are UTF-8. Throws as `require_pairs`.
double corpus_ter(std::span<const std::string> hypotheses, std::span<const std::string> references);

}  // namespace nmt
