#include "nmt_example/data/line_reader.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>

#include "ddl/error.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;
using ddl::Error;
using ddl::ErrorCode;

constexpr std::size_t block_bytes = 1 << 16;

std::size_t read_block(std::istream& stream, const std::string& name, std::span<char> block) {
  stream.read(block.data(), static_cast<std::streamsize>(block.size()));
  if (stream.bad())
    throw Error(ErrorCode::io, fmt::format("{}: reading failed: {}", name, std::strerror(errno)));
  return static_cast<std::size_t>(stream.gcount());
}

std::size_t read_standard_input(const std::string& name, std::span<char> block) {
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, block.data(), block.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EBADF) return 0;  // it is closed
    if (errno != EINTR)
      throw Error(ErrorCode::io, fmt::format("{}: reading failed: {}", name, std::strerror(errno)));
  }
}

std::size_t read_block(gzFile file, const std::string& name, std::span<char> block) {
  const auto fail = [&](std::string_view what) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}: damaged gzip file: {}; fetch or compress it again", name, what));
  };
  const int got = gzread(file, block.data(), static_cast<unsigned>(block.size()));
  // zlib also reads a file that is not gzip, but a file named .gz must be gzip.
  if (got > 0 && gzdirect(file)) fail("it does not start with a gzip header");
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  if (code == Z_BUF_ERROR) fail("it ends in the middle of the data");
  if (code == Z_ERRNO) throw Error(ErrorCode::io, fmt::format("{}: reading failed: {}", name, message));
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) fail(message);
  return static_cast<std::size_t>(got);
}

std::vector<std::string> all_lines(LineReader reader) {
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

}  // namespace

LineReader::LineReader(std::istream& stream, std::string name)
    : name_(std::move(name)),
      source_([name = name_, &stream](std::span<char> block) { return read_block(stream, name, block); }),
      block_(block_bytes) {}

LineReader::LineReader(const fs::path& path) : name_(path.string()), block_(block_bytes) {
  const auto cannot = [&](const char* why) {
    throw Error(ErrorCode::io, fmt::format("{}: cannot be opened for reading: {}", name_, why));
  };
  if (path == "-") {
    name_ = "standard input";
    is_standard_input_ = true;
    source_ = [name = name_](std::span<char> block) { return read_standard_input(name, block); };
    return;
  }
  if (fs::is_directory(path)) cannot("is a directory");
  if (path.extension() == ".gz") {
    const std::shared_ptr<gzFile_s> file(gzopen(path.c_str(), "rb"), [](gzFile f) {
      if (f != nullptr) gzclose(f);
    });
    if (file == nullptr) cannot(std::strerror(errno));
    gzbuffer(file.get(), 1 << 17);
    source_ = [name = name_, file](std::span<char> block) { return read_block(file.get(), name, block); };
    return;
  }
  const auto stream = std::make_shared<std::ifstream>(path, std::ios::binary);
  if (!*stream) cannot(std::strerror(errno));
  source_ = [name = name_, stream](std::span<char> block) { return read_block(*stream, name, block); };
}

bool LineReader::next(std::string& line) {
  line.clear();
  while (true) {
    if (at_ == filled_) {
      at_ = 0;
      filled_ = source_(block_);
      if (filled_ == 0) return !line.empty() && finish(line);
    }
    const std::string_view rest(block_.data() + at_, filled_ - at_);
    const std::size_t end = rest.find('\n');
    const std::string_view part = rest.substr(0, end);
    line.append(part);
    if (line.size() > max_line_bytes) {
      throw Error(
          ErrorCode::corrupt_data,
          fmt::format("{}:{}: the line is longer than {} bytes; expected text with one sentence per line",
                      name_, lines_ + 1, max_line_bytes));
    }
    at_ += part.size();
    if (end == std::string_view::npos) continue;
    ++at_;
    return finish(line);
  }
}

bool LineReader::is_ready() const {
  if (!is_standard_input_) return true;
  const std::string_view rest(block_.data() + at_, filled_ - at_);
  if (rest.find('\n') != std::string_view::npos) return true;
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) != 0;
}

bool LineReader::finish(std::string& line) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  ++lines_;
  if (lines_ == 1 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (lines_ == 1 && (line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF"))) {
    throw Error(
        ErrorCode::corrupt_data,
        fmt::format("{}:1: found UTF-16, by its byte order mark; expected UTF-8 text, convert the file "
                    "with iconv -f UTF-16 -t UTF-8",
                    name_));
  }
  if (const auto nul = line.find('\0'); nul != std::string::npos) {
    throw Error(
        ErrorCode::corrupt_data,
        fmt::format("{}:{}: NUL byte at byte {} of the line; expected UTF-8 text", name_, lines_, nul));
  }
  if (const auto offset = first_invalid_utf8(line)) {
    throw Error(
        ErrorCode::corrupt_data,
        fmt::format("{}:{}: invalid UTF-8 at byte {} of the line (0x{:02x}); expected UTF-8 text, convert "
                    "the file, for instance with iconv",
                    name_, lines_, *offset, static_cast<unsigned char>(line[*offset])));
  }
  return true;
}

std::vector<std::string> read_lines(const fs::path& path) { return all_lines(LineReader(path)); }

std::vector<std::string> read_lines(std::istream& stream, const std::string& name) {
  return all_lines(LineReader(stream, name));
}

}  // namespace nmt
