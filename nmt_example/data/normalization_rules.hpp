#pragma once

#include <string_view>

namespace nmt {

/// Whether the rules for normalising text in a serialized SentencePiece model are whole. SentencePiece
/// searches them without a check, outside of them if they are damaged.
bool has_sound_normalization_rules(std::string_view model);

}  // namespace nmt
