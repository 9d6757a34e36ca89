#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "nmt_example/data/line_reader.hpp"

namespace nmt {

/// Sentence i of `source` is translated by sentence i of `target`.
struct ParallelText {
  std::vector<std::string> source;
  std::vector<std::string> target;

  [[nodiscard]] std::size_t size() const noexcept { return source.size(); }
};

/// The pairs of a text one after the other, for `encode`. `text` must live as long.
std::function<bool(std::string& source, std::string& target)> pairs_of(const ParallelText& text);

/// The file PREFIX.suffix or, if that does not exist, the same name with .gz. Throws `io`, naming both.
std::filesystem::path text_file(const std::string& prefix, const std::string& suffix);

/// Reads the files PREFIX.source_suffix and PREFIX.target_suffix pair by pair, empty lines included. Throws
/// as `text_file` and `LineReader`, and `corrupt_data` for an empty file, or when one file ends before the
/// other (with both line counts).
class ParallelReader {
 public:
  ParallelReader(const std::string& prefix, const std::string& source_suffix,
                 const std::string& target_suffix);

  /// Returns false at the end.
  bool next(std::string& source, std::string& target);

 private:
  LineReader source_, target_;
};

/// The whole text. Memory: the text.
ParallelText read_parallel_text(const std::string& prefix, const std::string& source_suffix,
                                const std::string& target_suffix);

}  // namespace nmt
