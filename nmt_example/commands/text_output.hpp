#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace nmt {

/// A text file that a command writes as it goes, or standard output. A file is complete or absent: it has
/// another name until `finish` is called. Devices and pipes are written as they are. For one rank.
class TextOutput {
 public:
  /// `flag` names the flag that gives the path, for messages; an empty path is standard output. Throws `io`
  /// if it cannot be written.
  TextOutput(std::string_view flag, std::string path);
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;
  /// Removes a file that is not finished.
  ~TextOutput();

  [[nodiscard]] bool is_standard_output() const noexcept { return path_.empty(); }
  /// Readers of a pipe or a terminal have the text when this returns. Throws `io`.
  void write(std::string_view text);
  void finish();

 private:
  [[noreturn]] void fail() const;

  std::string flag_, path_;
  std::string unfinished_;  // the name until then; empty: the file has its own
  std::FILE* file_;
};

}  // namespace nmt
