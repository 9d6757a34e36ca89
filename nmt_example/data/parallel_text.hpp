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

/// The longest line that is accepted; a longer one suggests that the file is not text.
inline constexpr std::size_t max_line_bytes = 1 << 20;

/// Reads the files PREFIX.source_suffix and PREFIX.target_suffix; if one does not exist, the same name with
/// .gz (gzip, several members allowed). Lines end with LF or CR LF; a byte order mark is dropped; everything
/// else is kept, including empty lines, so line numbers agree.
/// Memory: the text. Throws `ddl::Error`:
/// - `io`: neither name exists (both are named), or reading fails;
/// - `corrupt_data`: an empty file, different line counts (both are given), invalid UTF-8 (file, line,
///   byte offset in the line), a NUL byte, a line above `max_line_bytes`, a damaged or cut-off .gz.
ParallelText read_parallel_text(const std::string& prefix, const std::string& source_suffix,
                                const std::string& target_suffix);

/// Reads one file in the same way, but under this name only; a name that ends with .gz must be a gzip file.
/// "-" is standard input. An empty file gives no lines.
std::vector<std::string> read_lines(const std::filesystem::path& path);

/// Reads lines until the stream ends; `name` identifies it in messages.
std::vector<std::string> read_lines(std::istream& stream, const std::string& name);

}  // namespace nmt
