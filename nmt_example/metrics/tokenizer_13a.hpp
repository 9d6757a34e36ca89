#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nmt {

/// Splits a segment as mteval-v13a does, in the form that sacreBLEU gives it: trailing white space and
/// "<skipped>" go, four entities are unescaped, ASCII punctuation stands alone (period and comma not
/// between digits, a hyphen only after a digit), and what remains is split at Unicode white space.
/// "x,.5" gives x , .5 and "a.,5b" gives a . ,5b. `text` is UTF-8.
std::vector<std::string> tokenize_13a(std::string_view text);

}  // namespace nmt
