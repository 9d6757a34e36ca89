#include "nmt_example/data/parallel_text.hpp"

#include <fmt/format.h>

#include "ddl/error.hpp"

namespace nmt {

namespace fs = std::filesystem;
using ddl::Error;
using ddl::ErrorCode;

namespace {

/// Throws if a file that was read to its end has no lines.
void check_not_empty(const LineReader& reader) {
  if (reader.lines() > 0) return;
  throw Error(ErrorCode::corrupt_data,
              fmt::format("{}: the file is empty; expected one sentence per line", reader.name()));
}

}  // namespace

std::function<bool(std::string&, std::string&)> pairs_of(const ParallelText& text) {
  return [&text, i = std::size_t{0}](std::string& source, std::string& target) mutable {
    if (i == text.size()) return false;
    source = text.source[i];
    target = text.target[i++];
    return true;
  };
}

fs::path text_file(const std::string& prefix, const std::string& suffix) {
  const fs::path plain = prefix + "." + suffix;
  const fs::path zipped = plain.string() + ".gz";
  std::error_code ignored;
  for (const fs::path& path : {plain, zipped}) {
    if (fs::exists(path, ignored)) return path;
  }
  throw Error(ErrorCode::io,
              fmt::format("neither {} nor {} exists; check the prefix \"{}\" and the language \"{}\"",
                          plain.string(), zipped.string(), prefix, suffix));
}

ParallelReader::ParallelReader(const std::string& prefix, const std::string& source_suffix,
                               const std::string& target_suffix)
    : source_(text_file(prefix, source_suffix)), target_(text_file(prefix, target_suffix)) {}

bool ParallelReader::next(std::string& source, std::string& target) {
  const bool has_source = source_.next(source), has_target = target_.next(target);
  if (has_source && has_target) return true;
  check_not_empty(source_);
  check_not_empty(target_);
  if (!has_source && !has_target) return false;
  while (source_.next(source)) {
  }
  while (target_.next(target)) {
  }
  throw Error(ErrorCode::corrupt_data,
              fmt::format("{} has {} lines but {} has {}; line i of one must translate line i of the other",
                          source_.name(), source_.lines(), target_.name(), target_.lines()));
}

ParallelText read_parallel_text(const std::string& prefix, const std::string& source_suffix,
                                const std::string& target_suffix) {
  ParallelReader reader(prefix, source_suffix, target_suffix);
  ParallelText text;
  for (std::string source, target; reader.next(source, target);) {
    text.source.push_back(source);
    text.target.push_back(target);
  }
  return text;
}

}  // namespace nmt
