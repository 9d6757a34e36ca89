#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nmt {

/// Splits a segment as mteval-v13a does, in sacreBLEU's variant: removes trailing white space and
/// "<skipped>", unescapes four entities, separates ASCII punctuation (period and comma not between digits, a
/// hyphen only after a digit), and splits the rest at Unicode white space. "x,.5" gives x , .5 and "a.,5b"
/// gives a . ,5b. `text` is UTF-8.
std::vector<std::string> tokenize_13a(std::string_view text);

}  // namespace nmt
