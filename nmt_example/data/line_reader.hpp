#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace nmt {

/// The longest line that is accepted; a longer one suggests that the file is not text.
inline constexpr std::size_t max_line_bytes = 1 << 20;

/// Reads text line by line, and checks it. Lines end with LF or CR LF; a byte order mark is dropped. Memory:
/// the longest line. Errors: `io` if reading fails; `corrupt_data` for invalid UTF-8 (file, line, byte offset
/// in the line), a NUL byte, a line above `max_line_bytes`, a damaged or cut-off .gz.
class LineReader {
 public:
  /// A file; one whose name ends with .gz must be gzip (several members allowed). "-" is standard input, of
  /// which a line can be had as soon as it has been written.
  explicit LineReader(const std::filesystem::path& path);
  /// `name` identifies the stream in messages.
  LineReader(std::istream& stream, std::string name);

  /// Returns false at the end.
  bool next(std::string& line);
  /// Whether `next` has something to read, so that it need not wait for whoever writes standard input.
  [[nodiscard]] bool is_ready() const;
  /// Lines read so far.
  [[nodiscard]] std::size_t lines() const noexcept { return lines_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  /// Fills the block from its beginning; 0: the end.
  using Source = std::function<std::size_t(std::span<char> block)>;

  bool finish(std::string& line);

  std::string name_;
  Source source_;
  std::vector<char> block_;
  std::size_t at_ = 0, filled_ = 0;
  std::size_t lines_ = 0;
  bool is_standard_input_ = false;
};

/// All lines; an empty file gives none.
std::vector<std::string> read_lines(const std::filesystem::path& path);
std::vector<std::string> read_lines(std::istream& stream, const std::string& name);

}  // namespace nmt
