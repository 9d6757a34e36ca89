#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "nmt_example/data/line_reader.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

/// The lines to translate, as --inference_input_file and --inference_list say, with their references, as
/// --inference_ref_file says. Memory: a window, or the lines of --inference_list. For one rank.
class LineSource {
 public:
  /// Lines that are translated together.
  struct Window {
    std::vector<std::string> lines, references;
  };

  explicit LineSource(const Options& options);

  /// What can be read without waiting, from one line up to a bound on lines and bytes; waits for the first
  /// line. No lines: the end. Throws as `LineReader`; `mismatch` unless each line has a reference;
  /// `invalid_argument` for a number of a line that is not there.
  Window next();

 private:
  struct Line {
    std::string text, reference;
  };
  bool read(Line& line);
  void read_list();
  [[noreturn]] void refuse_references();

  const Options& options_;
  LineReader reader_;
  std::optional<LineReader> references_;
  std::vector<Line> listed_;
  std::size_t next_listed_ = 0;
  bool list_is_read_ = false;
};

}  // namespace nmt
