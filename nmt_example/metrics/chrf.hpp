#pragma once

#include <span>
#include <string>

namespace nmt {

/// Corpus chrF (Popovic 2015), equal to sacreBLEU's chrF2 with one reference: characters without white space,
/// orders 1 to 6, beta 2, mean precision and recall over the orders that both sides have. 0 to 100. `lines`
/// are UTF-8. Throws as `require_pairs`.
double corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::string> references);

}  // namespace nmt
