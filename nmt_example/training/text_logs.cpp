#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "ddl/error.hpp"
#include "nmt_example/training/run_log.hpp"

namespace nmt {
namespace {

/// A file of lines, each of which belongs to a step.
class LineFile {
 public:
  /// The step of a line; nothing for a line that is not one of such a log.
  using StepOf = std::function<std::optional<std::int64_t>(const std::string& line)>;

  /// `flag` is for messages, `header` the first line, if it is not empty.
  LineFile(std::string flag, std::string path, std::int64_t start_step, const std::string& header,
           const StepOf& step_of)
      : flag_(std::move(flag)), path_(std::move(path)) {
    std::uintmax_t kept = 0;
    if (start_step > 0 && std::filesystem::is_regular_file(path_)) {
      kept = bytes_to_keep(start_step, header, step_of);
      std::error_code error;
      std::filesystem::resize_file(path_, kept, error);
      if (error) {
        errno = error.value();
        fail("truncate");
      }
    }
    file_.reset(std::fopen(path_.c_str(), kept > 0 ? "ae" : "we"));
    if (!file_) fail("open");
    if (kept == 0 && !header.empty()) write(header);
  }

  void write(const std::string& line) {
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size()) fail("write");
    if (std::fputc('\n', file_.get()) == EOF || std::fflush(file_.get()) != 0) fail("write");
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  [[noreturn]] void fail(const char* operation) const {
    throw ddl::Error(ddl::ErrorCode::io,
                     fmt::format("--{}={}: {}: {}", flag_, path_, operation, std::strerror(errno)));
  }

  /// The lines up to `start_step`.
  [[nodiscard]] std::uintmax_t bytes_to_keep(std::int64_t start_step, const std::string& header,
                                             const StepOf& step_of) const {
    std::ifstream file(path_, std::ios::binary);
    std::uintmax_t kept = 0;
    std::string line;
    for (std::int64_t number = 1; std::getline(file, line); ++number) {
      if (file.eof()) break;  // torn: no newline
      if (number > 1 || header.empty()) {
        const std::optional<std::int64_t> step = step_of(line);
        if (!step) refuse(number, "has no step");
        if (*step > start_step) break;
      } else if (line != header) {
        refuse(number, fmt::format("is not '{}'", header));
      }
      kept += line.size() + 1;
    }
    return kept;
  }

  [[noreturn]] void refuse(std::int64_t line, const std::string& why) const {
    throw ddl::Error(ddl::ErrorCode::corrupt_data,
                     fmt::format("--{}={}: line {} {}, so this is no log to continue; give another file",
                                 flag_, path_, line, why));
  }

  std::string flag_;
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

std::string number(const LogValue& value) { return fmt::format("{:.{}g}", value.value, value.digits); }

std::optional<std::int64_t> step_in_json(const std::string& line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) return {};
  return object["step"].get<std::int64_t>();
}

std::optional<std::int64_t> first_number(const std::string& line) {
  std::int64_t step = 0;
  const char* const end = line.data() + line.size();
  const auto [rest, error] = std::from_chars(line.data(), end, step);
  if (error != std::errc() || rest == end || *rest != ',') return {};
  return step;
}

class JsonLines final : public LogWriter {
 public:
  JsonLines(const std::string& path, std::int64_t start_step)
      : file_("log_jsonl", path, start_step, "", step_in_json) {}

  void write(std::int64_t step, std::span<const LogValue> values) override {
    std::string line = fmt::format("{{\"step\": {}", step);
    for (const LogValue& value : values) {
      line += fmt::format(", \"{}\": {}", value.name, std::isfinite(value.value) ? number(value) : "null");
    }
    file_.write(line + '}');
  }

 private:
  LineFile file_;
};

std::string joined(const std::vector<std::string>& columns) {
  std::string line = "step";
  for (const std::string& column : columns) line += ',' + column;
  return line;
}

class CommaSeparated final : public LogWriter {
 public:
  CommaSeparated(const std::string& path, std::int64_t start_step, std::vector<std::string> columns)
      : file_("log_csv", path, start_step, joined(columns), first_number), columns_(std::move(columns)) {}

  void write(std::int64_t step, std::span<const LogValue> values) override {
    std::string line = fmt::format("{}", step);
    for (const std::string& column : columns_) {
      const auto found = std::ranges::find(values, column, &LogValue::name);
      line += ',';
      if (found != values.end() && std::isfinite(found->value)) line += number(*found);
    }
    file_.write(line);
  }

 private:
  LineFile file_;
  std::vector<std::string> columns_;
};

}  // namespace

std::unique_ptr<LogWriter> json_lines(const std::string& path, std::int64_t start_step) {
  return std::make_unique<JsonLines>(path, start_step);
}

std::unique_ptr<LogWriter> comma_separated(const std::string& path, std::int64_t start_step,
                                           std::vector<std::string> columns) {
  return std::make_unique<CommaSeparated>(path, start_step, std::move(columns));
}

}  // namespace nmt
