#pragma once

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace nmt {

/// Sentence i of `source` is translated by sentence i of `target`.
struct ParallelText {
  std::vector<std::string> source;
  std::vector<std::string> target;

  [[nodiscard]] std::size_t size() const noexcept { return source.size(); }
};

/// The longest line that is read; a longer one is a sign that the file is not text.
inline constexpr std::size_t max_line_bytes = 1 << 20;

/// Reads the files PREFIX.source_suffix and PREFIX.target_suffix; where one does not exist, the same
/// name with .gz added (gzip, several members allowed). Lines end with LF or CR LF; a byte order mark
/// is dropped; everything else stays as it is, empty lines included, so line numbers agree.
/// Memory: the text. Throws `ddl::Error`:
/// - `io`: neither name exists (both are named), or reading fails;
/// - `corrupt_data`: an empty file, different line counts (both are given), invalid UTF-8 (file, line,
///   byte offset in the line), a NUL byte, a line above `max_line_bytes`, a damaged or cut-off .gz.
ParallelText read_parallel_text(const std::string& prefix, const std::string& source_suffix,
                                const std::string& target_suffix);

/// Reads one file the same way, without looking for other names; it is taken for gzip if its name ends
/// with .gz. "-" is standard input. An empty file gives no lines.
std::vector<std::string> read_lines(const std::filesystem::path& path);

/// Reads lines until the stream ends; `name` stands for it in messages.
std::vector<std::string> read_lines(std::istream& stream, const std::string& name);

}  // namespace nmt
