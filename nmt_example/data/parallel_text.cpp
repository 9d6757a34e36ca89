#include "nmt_example/data/parallel_text.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <string_view>

#include "ddl/error.hpp"
#include "nmt_example/data/utf8.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;
using ddl::Error;
using ddl::ErrorCode;

/// Splits a stream of bytes into lines, and checks each line.
class LineSplitter {
 public:
  explicit LineSplitter(std::string name) : name_(std::move(name)) {}

  void add(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      line_.append(bytes.substr(0, end));
      if (line_.size() > max_line_bytes) {
        throw Error(
            ErrorCode::corrupt_data,
            fmt::format("{}:{}: the line is longer than {} bytes; expected text with one sentence per line",
                        name_, lines_.size() + 1, max_line_bytes));
      }
      if (end == std::string_view::npos) return;
      finish_line();
      bytes.remove_prefix(end + 1);
    }
  }

  std::vector<std::string> finish() {
    if (!line_.empty()) finish_line();
    return std::move(lines_);
  }

 private:
  void finish_line() {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (lines_.empty() && line_.compare(0, byte_order_mark.size(), byte_order_mark) == 0) {
      line_.erase(0, byte_order_mark.size());
    }
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    if (const auto nul = line_.find('\0'); nul != std::string::npos) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}:{}: NUL byte at byte {} of the line; expected UTF-8 text", name_,
                              lines_.size() + 1, nul));
    }
    if (const auto offset = first_invalid_utf8(line_)) {
      throw Error(
          ErrorCode::corrupt_data,
          fmt::format("{}:{}: invalid UTF-8 at byte {} of the line (0x{:02x}); expected UTF-8 text, convert "
                      "the file, for instance with iconv",
                      name_, lines_.size() + 1, *offset, static_cast<unsigned char>(line_[*offset])));
    }
    lines_.push_back(line_);
    line_.clear();
  }

  std::string name_;
  std::string line_;
  std::vector<std::string> lines_;
};

std::vector<std::string> read_plain(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream || fs::is_directory(path)) {
    throw Error(ErrorCode::io, fmt::format("{}: cannot be opened for reading: {}", path.string(),
                                           fs::is_directory(path) ? "is a directory" : std::strerror(errno)));
  }
  return read_lines(stream, path.string());
}

struct CloseGzip {
  void operator()(gzFile file) const { gzclose(file); }
};

std::vector<std::string> read_gzip(const fs::path& path) {
  if (fs::is_directory(path)) {
    throw Error(ErrorCode::io, fmt::format("{}: cannot be read: is a directory", path.string()));
  }
  const std::unique_ptr<gzFile_s, CloseGzip> file(gzopen(path.c_str(), "rb"));
  if (!file) {
    throw Error(ErrorCode::io,
                fmt::format("{}: cannot be opened for reading: {}", path.string(), std::strerror(errno)));
  }
  gzbuffer(file.get(), 1 << 17);
  LineSplitter splitter(path.string());
  std::vector<char> block(1 << 16);
  const auto fail = [&](std::string_view what) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}: damaged gzip file: {}; fetch or compress it again", path.string(), what));
  };
  while (true) {
    const int got = gzread(file.get(), block.data(), static_cast<unsigned>(block.size()));
    // zlib also reads a file that is not gzip, but a file named .gz must be gzip.
    if (got > 0 && gzdirect(file.get())) fail("it does not start with a gzip header");
    int code = Z_OK;
    const char* message = gzerror(file.get(), &code);
    if (code == Z_BUF_ERROR) fail("it ends in the middle of the data");
    if (code == Z_ERRNO)
      throw Error(ErrorCode::io, fmt::format("{}: reading failed: {}", path.string(), message));
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) fail(message);
    if (got == 0) break;
    splitter.add({block.data(), static_cast<std::size_t>(got)});
  }
  return splitter.finish();
}

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
    result = {plain, read_plain(plain)};
  } else if (fs::exists(zipped, ignored)) {
    result = {zipped, read_gzip(zipped)};
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

std::vector<std::string> read_lines(const fs::path& path) {
  if (path == "-") return read_lines(std::cin, "standard input");
  return path.extension() == ".gz" ? read_gzip(path) : read_plain(path);
}

std::vector<std::string> read_lines(std::istream& stream, const std::string& name) {
  LineSplitter splitter(name);
  std::vector<char> block(1 << 16);
  while (stream) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    splitter.add({block.data(), static_cast<std::size_t>(stream.gcount())});
  }
  if (stream.bad()) {
    throw Error(ErrorCode::io, fmt::format("{}: reading failed: {}", name, std::strerror(errno)));
  }
  return splitter.finish();
}

}  // namespace nmt
