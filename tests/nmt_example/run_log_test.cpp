// Logs of numbers besides JSON lines: text with commas, and TensorBoard's event files, which are parsed here
// byte by byte.
#include "nmt_example/training/run_log.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "ddl/error.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace nmt {
namespace {

/// CRC-32C, bit by bit, from its definition.
std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78U : crc >> 1;
  }
  return ~crc;
}

std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

template <typename T>
T take(std::string_view& bytes) {
  T value{};
  if (bytes.size() < sizeof(T)) throw std::runtime_error("cut off");
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<std::uint64_t>(take<unsigned char>(bytes));
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

/// The fields of a protobuf message, as their bytes or little-endian numbers.
std::multimap<int, std::string> fields_of(std::string_view message) {
  std::multimap<int, std::string> fields;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    std::size_t size = 0;
    std::string value;
    switch (key & 7) {
      case 0:
        value = std::to_string(take_varint(message));
        break;
      case 1:
        size = 8;
        break;
      case 5:
        size = 4;
        break;
      default:
        size = take_varint(message);
    }
    if ((key & 7) != 0) value = message.substr(0, size);
    message.remove_prefix(size);
    fields.emplace(static_cast<int>(key >> 3), value);
  }
  return fields;
}

struct Event {
  std::int64_t step = 0;
  std::string version;
  bool starts_session = false;
  std::map<std::string, float> values;
};

std::vector<Event> events_in(const std::string& file) {
  std::string_view bytes = file;
  std::vector<Event> events;
  while (!bytes.empty()) {
    const std::string_view length = bytes.substr(0, 8);
    const auto size = take<std::uint64_t>(bytes);
    EXPECT_EQ(take<std::uint32_t>(bytes), masked(crc32c(length)));
    const std::string_view message = bytes.substr(0, size);
    bytes.remove_prefix(size);
    EXPECT_EQ(take<std::uint32_t>(bytes), masked(crc32c(message)));
    Event event;
    for (const auto& [field, value] : fields_of(message)) {
      if (field == 2) event.step = std::stoll(value);
      if (field == 3) event.version = value;
      if (field == 7) event.starts_session = fields_of(value).find(1)->second == "1";
      if (field != 5) continue;
      for (const auto& [number, scalar] : fields_of(value)) {
        EXPECT_EQ(number, 1);
        const auto parts = fields_of(scalar);
        std::string_view number_bytes = parts.find(2)->second;
        event.values[parts.find(1)->second] = take<float>(number_bytes);
      }
    }
    events.push_back(event);
  }
  return events;
}

class RunLog : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return directory_.file(name); }
  [[nodiscard]] std::string text(const std::string& name) const { return ddl::test::contents(path(name)); }
  /// The files in the order in which TensorBoard reads them.
  [[nodiscard]] std::vector<std::vector<Event>> event_files(const std::string& name) const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(name)))
      names.insert(entry.path().string());
    std::vector<std::vector<Event>> files;
    for (const std::string& file : names) files.push_back(events_in(ddl::test::contents(file)));
    return files;
  }

  ddl::test::TemporaryDirectory directory_;
};

// The checksum of this test is that of the standard, RFC 3720, B.4.
TEST(Crc32c, IsTheStandards) { EXPECT_EQ(crc32c("123456789"), 0xe3069283U); }

// TensorBoard would show nothing.
TEST_F(RunLog, EventFilesCanBeParsed) {
  {
    const auto log = tensorboard_events(path("events"), 0);
    log->write(1, std::vector<LogValue>{{"loss", 2.5}, {"ppl", std::exp(2.5)}});
    log->write(300, std::vector<LogValue>{{"dev_bleu", 31.25}});
  }
  const auto files = event_files("events");
  ASSERT_EQ(files.size(), 1u);
  const std::vector<Event>& events = files[0];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].values, (std::map<std::string, float>{{"loss", 2.5F}, {"ppl", std::exp(2.5F)}}));
  EXPECT_EQ(events[3].step, 300);
  EXPECT_EQ(events[3].values, (std::map<std::string, float>{{"dev_bleu", 31.25F}}));
}

// After a resume, or in a new run, curves would go back and forth between two runs.
TEST_F(RunLog, EventsOfLaterStepsAreVoidAfterAResume) {
  tensorboard_events(path("events"), 0)->write(5, std::vector<LogValue>{{"loss", 1}});
  tensorboard_events(path("events"), 3)->write(4, std::vector<LogValue>{{"loss", 2}});
  const auto files = event_files("events");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_TRUE(files[1][1].starts_session);
  EXPECT_EQ(files[1][1].step, 4) << "events from this step on are dropped";
  EXPECT_EQ(files[1][2].values.at("loss"), 2);
}

// A spreadsheet would get values in wrong columns, or some steps twice.
TEST_F(RunLog, TextWithCommas) {
  const std::vector<std::string> columns = {"loss", "lr", "dev_ppl"};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  {
    const auto log = comma_separated(path("log.csv"), 0, columns);
    log->write(1, std::vector<LogValue>{{"lr", 0.5}, {"loss", 1.0 / 3}});
    log->write(1, std::vector<LogValue>{{"dev_ppl", 7}});
    log->write(2, std::vector<LogValue>{{"loss", nan}, {"lr", 0.25}});
  }
  EXPECT_EQ(text("log.csv"), "step,loss,lr,dev_ppl\n1,0.333333333,0.5,\n1,,,7\n2,,0.25,\n");
  comma_separated(path("log.csv"), 1, columns)->write(2, std::vector<LogValue>{{"loss", 3}});
  EXPECT_EQ(text("log.csv"), "step,loss,lr,dev_ppl\n1,0.333333333,0.5,\n1,,,7\n2,3,,\n");
  ddl::test::expect_error(ddl::ErrorCode::corrupt_data, {"--log_csv=", "line 1", "step,loss"},
                          [&] { comma_separated(path("log.csv"), 1, {"loss"}); });
}

// A run would go on for hours without a log.
TEST_F(RunLog, FullDiskAndMissingDirectory) {
  ddl::test::expect_error(ddl::ErrorCode::io, {"--log_csv=/dev/full", "No space left"},
                          [] { comma_separated("/dev/full", 1, {}); });
  ddl::test::expect_error(ddl::ErrorCode::io, {"--log_dir=/dev/full/x"},
                          [] { tensorboard_events("/dev/full/x", 0); });
}

}  // namespace
}  // namespace nmt
