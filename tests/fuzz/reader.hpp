#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ddl/error.hpp"

/// @file
/// Readers of bytes that the project did not write, or not in this run. Each program of readers has its own
/// `readers`; `fuzzer.cpp` passes libFuzzer's bytes to one of them, `readers_test.cpp` mutants to each.
namespace ddl::fuzz {

struct Reader {
  std::string_view name;  ///< Also that of its folder in corpus/.
  /// Passes bytes to the reader, which must accept or refuse them as documented, and returns whether it
  /// accepted them. A finding is a std::logic_error, any other exception, a crash or a hang.
  bool (*takes)(std::string_view bytes);
};

std::span<const Reader> readers();

/// Throws std::logic_error with `what` unless `holds`.
void require(bool holds, const std::string& what);
/// Requires that an error has this code, and a message of less than 2000 bytes that a terminal can show.
void require_message(const Error& error, ErrorCode code);
/// The same, and that the message says what was found and expected.
void require_found_and_expected(const Error& error, ErrorCode code);

/// A file in memory with these bytes.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile();
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace ddl::fuzz
