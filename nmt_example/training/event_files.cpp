// TensorBoard's files: records of a length, its checksum, a protobuf message of type Event, and its checksum.

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "ddl/error.hpp"
#include "nmt_example/training/run_log.hpp"

namespace nmt {
namespace {

static_assert(std::endian::native == std::endian::little, "records and messages are little-endian");

constexpr std::array<std::uint32_t, 256> castagnoli_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
    table[byte] = crc;
  }
  return table;
}();

/// CRC-32C, rotated and shifted as in records.
std::uint32_t masked_crc(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const char c : bytes)
    crc = (crc >> 8) ^ castagnoli_table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return std::rotr(~crc, 15) + 0xa282ead8U;
}

template <typename T>
void append_bytes(std::string& to, const T& value) {
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof(T));
  to.append(bytes.data(), bytes.size());
}

/// A protobuf message. The number of a field is as in TensorFlow's event.proto and summary.proto.
class Message {
 public:
  void integer(int field, std::uint64_t value) {
    key(field, 0);
    varint(value);
  }
  void real(int field, double value) {
    key(field, 1);
    append_bytes(bytes_, value);
  }
  void real(int field, float value) {
    key(field, 5);
    append_bytes(bytes_, value);
  }
  void text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  void key(int field, unsigned type) { varint(static_cast<std::uint64_t>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Message event(std::int64_t step) {
  Message message;
  message.real(1, wall_time());
  message.integer(2, static_cast<std::uint64_t>(step));
  return message;
}

class EventFile final : public LogWriter {
 public:
  EventFile(const std::string& directory, std::int64_t start_step) : directory_(directory) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) {
      errno = error.value();
      fail("create");
    }
    // A second file of the same second must have a later name, because they are read in the order of names.
    const auto second = static_cast<std::int64_t>(wall_time());
    for (int i = 0; !file_; ++i) {
      const auto path = std::filesystem::path(directory) /
                        fmt::format("events.out.tfevents.{}.ddl_nmt.{}.{:03}", second, ::getpid(), i);
      file_.reset(std::fopen(path.c_str(), "wxe"));
      if (!file_ && errno != EEXIST) fail("open");
    }
    Message version = event(0);
    version.text(3, "brain.Event:2");
    write(version);
    Message session;  // A SessionLog with status START: what older files have of this step and later ones is
                      // void.
    session.integer(1, 1);
    Message start = event(start_step + 1);
    start.message(7, session);
    write(start);
  }

  void write(std::int64_t step, std::span<const LogValue> values) override {
    Message summary;
    for (const LogValue& value : values) {
      Message scalar;
      scalar.text(1, value.name);
      scalar.real(2, static_cast<float>(value.value));
      summary.message(1, scalar);
    }
    Message message = event(step);
    message.message(5, summary);
    write(message);
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  [[noreturn]] void fail(const char* operation) const {
    throw ddl::Error(ddl::ErrorCode::io,
                     fmt::format("--log_dir={}: {}: {}", directory_, operation, std::strerror(errno)));
  }

  void write(const Message& message) {
    std::string record;
    append_bytes(record, static_cast<std::uint64_t>(message.bytes().size()));
    append_bytes(record, masked_crc(record));
    record += message.bytes();
    append_bytes(record, masked_crc(message.bytes()));
    if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size()) fail("write");
    if (std::fflush(file_.get()) != 0) fail("write");
  }

  std::string directory_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace

std::unique_ptr<LogWriter> tensorboard_events(const std::string& directory, std::int64_t start_step) {
  return std::make_unique<EventFile>(directory, start_step);
}

}  // namespace nmt
