#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"

namespace nmt {

/// A file of lines, and the flag that names it.
struct NamedFile {
  std::string_view flag;
  std::string path;
};

/// Lines that all ranks work on together, each with a line of a second file, if there is one.
struct LineWindow {
  std::vector<std::string> lines, beside;
};

/// Rank 0's lines, on all ranks. Collective.
std::vector<std::string> broadcast_lines(ddl::Context& context, std::span<const std::string> lines);

/// Reads lines on rank 0, a window at a time, for all ranks. Memory: a window, or the lines of a list.
class LineSource {
 public:
  /// `file`: with an empty path, standard input. `beside`: empty path: none. `list`: as `inference_indices`
  /// reads it; empty: all lines. Collective, as `next`; errors are agreed. Throws as `LineReader`.
  LineSource(ddl::Context& context, NamedFile file, NamedFile beside = {}, std::string list = {});
  ~LineSource();

  /// What can be read without waiting, from one line up to a bound on lines and bytes; waits for the first
  /// line. No lines: the end. Throws as `LineReader`; `mismatch` unless the files have as many lines;
  /// `invalid_argument` for a number of the list that is no line's.
  LineWindow next();

 private:
  class Reader;

  ddl::Context& context_;
  std::unique_ptr<Reader> reader_;  // on rank 0
  bool has_beside_;
};

}  // namespace nmt
