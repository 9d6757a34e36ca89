#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddl::collectives {

/// What goes between a rank and the hub of watches.
struct Frame {
  enum class Kind : std::uint16_t { hello = 1, welcome, failure, state, report, leave };
  Kind kind = Kind::hello;
  std::string body = {};
};

/// Bytes that a frame's body may have.
std::size_t longest_body(Frame::Kind kind) noexcept;

/// A frame's bytes: "DDLw", version (2), kind (2), length of the body (4), all little-endian; the body.
std::string encoded(const Frame& frame);

/// Cuts what comes out of a connection into frames. Nothing is believed, or kept, before its header has been
/// checked.
class FrameReader {
 public:
  static constexpr std::size_t header_bytes = 12;

  /// Takes bytes in the order in which they came.
  void put(std::string_view bytes) { bytes_.append(bytes); }
  /// The next frame, of these kinds only (a bit each); nothing if it has not come as a whole. Throws
  /// `corrupt_data`, saying what is wrong; then nothing else can be read.
  std::optional<Frame> next(unsigned kinds);

  [[nodiscard]] static constexpr unsigned bit(Frame::Kind kind) noexcept {
    return 1U << static_cast<unsigned>(kind);
  }

 private:
  std::string bytes_;
};

}  // namespace ddl::collectives
