#include "nmt_example/commands/text_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "ddl/error.hpp"

namespace nmt {

TextOutput::TextOutput(std::string_view flag, std::string path)
    : flag_(flag), path_(std::move(path)), file_(stdout) {
  if (path_.empty()) return;
  // A rename would remove a device or a pipe.
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(path_, ignored);
  if (!is_there || std::filesystem::is_regular_file(path_, ignored)) {
    unfinished_ = fmt::format("{}.unfinished-{}", path_, ::getpid());
  }
  file_ = std::fopen(unfinished_.empty() ? path_.c_str() : unfinished_.c_str(), "w");
  if (file_ == nullptr) fail();
}

TextOutput::~TextOutput() {
  if (path_.empty() || file_ == nullptr) return;
  std::fclose(file_);
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

void TextOutput::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) fail();
}

void TextOutput::finish() {
  if (path_.empty()) return;
  if (!unfinished_.empty() && ::fsync(::fileno(file_)) != 0) fail();
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail();
  if (!unfinished_.empty() && std::rename(unfinished_.c_str(), path_.c_str()) != 0) fail();
}

void TextOutput::fail() const {
  const std::string name = path_.empty() ? "standard output" : fmt::format("--{}={}", flag_, path_);
  throw ddl::Error(ddl::ErrorCode::io,
                   fmt::format("{}: {}; the output could not be written", name, std::strerror(errno)));
}

}  // namespace nmt
