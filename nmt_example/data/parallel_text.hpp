#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace nmt {

/// Sentence i of `source` is translated by sentence i of `target`.
struct ParallelText {
  std::vector<std::string> source;
  std::vector<std::string> target;

  [[nodiscard]] std::size_t size() const noexcept { return source.size(); }
};

/// Reads the files PREFIX.source_suffix and PREFIX.target_suffix; if one does not exist, the same name with
/// .gz. Memory: the text. Throws as `LineReader`, and `io` if neither name exists (both are named), or
/// `corrupt_data` for an empty file or different line counts (both are given).
ParallelText read_parallel_text(const std::string& prefix, const std::string& source_suffix,
                                const std::string& target_suffix);

}  // namespace nmt
