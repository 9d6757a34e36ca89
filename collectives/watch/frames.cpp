#include "collectives/watch/frames.hpp"

#include <fmt/format.h>

#include "ddl/error.hpp"
#include "topology/json_text.hpp"

namespace ddl::collectives {
namespace {

constexpr std::string_view magic = "DDLw";
constexpr std::uint16_t version = 1;

std::uint32_t number_at(std::string_view bytes, std::size_t offset, std::size_t width) {
  std::uint32_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(bytes[offset + i]);
  return value;
}

void append(std::string& bytes, std::uint32_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::corrupt_data, why); }

}  // namespace

std::size_t longest_body(Frame::Kind kind) noexcept {
  constexpr std::size_t kib = 1024;
  switch (kind) {
    case Frame::Kind::welcome:
    case Frame::Kind::leave:
      return 0;
    case Frame::Kind::hello:
      return kib;
    case Frame::Kind::failure:
      return 64 * kib;
    case Frame::Kind::state:
      return kib * kib;
    case Frame::Kind::report:
      return 64 * kib * kib;
  }
  return 0;
}

std::string encoded(const Frame& frame) {
  std::string bytes(magic);
  append(bytes, version, 2);
  append(bytes, static_cast<std::uint32_t>(frame.kind), 2);
  append(bytes, static_cast<std::uint32_t>(frame.body.size()), 4);
  return bytes + frame.body;
}

std::optional<Frame> FrameReader::next(unsigned kinds) {
  const std::string_view start = std::string_view(bytes_).substr(0, magic.size());
  if (start != magic.substr(0, start.size())) {
    refuse(fmt::format("found {}, expected a message of this library", topology::in_quotes(bytes_)));
  }
  if (bytes_.size() < header_bytes) return std::nullopt;
  if (const std::uint32_t found = number_at(bytes_, 4, 2); found != version) {
    refuse(
        fmt::format("found version {} of this library's messages, expected {}: do all ranks run the same "
                    "version?",
                    found, version));
  }
  const std::uint32_t kind = number_at(bytes_, 6, 2);
  if (kind >= 32 || (kinds & 1U << kind) == 0) refuse(fmt::format("found an unexpected message ({})", kind));
  const auto named = static_cast<Frame::Kind>(kind);
  const std::size_t length = number_at(bytes_, 8, 4);
  if (length > longest_body(named)) {
    refuse(fmt::format("found a message of {} bytes, expected {} at most", length, longest_body(named)));
  }
  if (bytes_.size() < header_bytes + length) return std::nullopt;
  Frame frame{named, bytes_.substr(header_bytes, length)};
  bytes_.erase(0, header_bytes + length);
  return frame;
}

}  // namespace ddl::collectives
