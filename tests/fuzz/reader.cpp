#include "fuzz/reader.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace ddl::fuzz {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

void require_message(const Error& error, ErrorCode code) {
  const std::string_view message = error.what();
  require(error.code() == code,
          "wrong code " + std::string(to_string(error.code())) + ": " + std::string(message));
  require(message.size() < 2000, "a message of " + std::to_string(message.size()) + " bytes");
  require(std::ranges::all_of(message, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }),
          "a message that a terminal may take for orders: " + std::string(message));
}

void require_found_and_expected(const Error& error, ErrorCode code) {
  require_message(error, code);
  const std::string_view message = error.what();
  require(message.find("found") != message.npos && message.find("expected") != message.npos,
          "neither found nor expected: " + std::string(message));
}

MemoryFile::MemoryFile(std::string_view bytes) : descriptor_(memfd_create("fuzzed", MFD_CLOEXEC)) {
  const auto size = static_cast<ssize_t>(bytes.size());
  if (descriptor_ < 0 || pwrite(descriptor_, bytes.data(), bytes.size(), 0) != size) {
    throw std::system_error(errno, std::generic_category(), "file in memory");
  }
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

MemoryFile::~MemoryFile() { close(descriptor_); }

}  // namespace ddl::fuzz
