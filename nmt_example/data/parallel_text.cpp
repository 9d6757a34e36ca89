#include "nmt_example/data/parallel_text.hpp"

#include <fmt/format.h>

#include "ddl/error.hpp"
#include "nmt_example/data/line_reader.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;
using ddl::Error;
using ddl::ErrorCode;

struct NamedLines {
  fs::path path;
  std::vector<std::string> lines;
};

NamedLines read_side(const std::string& prefix, const std::string& suffix) {
  const fs::path plain = prefix + "." + suffix;
  const fs::path zipped = plain.string() + ".gz";
  NamedLines result;
  std::error_code ignored;
  if (fs::exists(plain, ignored)) {
    result = {plain, read_lines(plain)};
  } else if (fs::exists(zipped, ignored)) {
    result = {zipped, read_lines(zipped)};
  } else {
    throw Error(ErrorCode::io,
                fmt::format("neither {} nor {} exists; check the prefix \"{}\" and the language \"{}\"",
                            plain.string(), zipped.string(), prefix, suffix));
  }
  if (result.lines.empty()) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}: the file is empty; expected one sentence per line", result.path.string()));
  }
  return result;
}

}  // namespace

ParallelText read_parallel_text(const std::string& prefix, const std::string& source_suffix,
                                const std::string& target_suffix) {
  NamedLines source = read_side(prefix, source_suffix);
  NamedLines target = read_side(prefix, target_suffix);
  if (source.lines.size() != target.lines.size()) {
    throw Error(
        ErrorCode::corrupt_data,
        fmt::format("{} has {} lines but {} has {}; line i of one must translate line i of the other",
                    source.path.string(), source.lines.size(), target.path.string(), target.lines.size()));
  }
  return {std::move(source.lines), std::move(target.lines)};
}

}  // namespace nmt
