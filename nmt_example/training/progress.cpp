#include "nmt_example/training/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ddl/error.hpp"

namespace nmt {
namespace {

// The bytes that a resumed run keeps of its log: the lines up to `start_step`.
std::uintmax_t bytes_to_keep(const std::string& path, std::int64_t start_step) {
  std::ifstream file(path, std::ios::binary);
  std::uintmax_t kept = 0;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (file.eof()) break;  // torn: no newline
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) {
      throw ddl::Error(
          ddl::ErrorCode::corrupt_data,
          fmt::format("--log_jsonl={}: line {} is not an object with a step, so this is no log to "
                      "continue; give another file",
                      path, number));
    }
    if (object["step"].get<std::int64_t>() > start_step) break;
    kept += line.size() + 1;
  }
  return kept;
}

std::string json_number(double value, int digits = 9) {
  return std::isfinite(value) ? fmt::format("{:.{}g}", value, digits) : "null";
}

double perplexity(double loss_sum, double target_tokens) { return std::exp(loss_sum / target_tokens); }

/// What `Progress::left` counts down from.
double of_end(const Length& end) {
  return end.unit() == LengthUnit::epochs ? static_cast<double>(std::int64_t{end}) : end.amount();
}

constexpr double seconds_between_bars = 0.1;

}  // namespace

StepLog::StepLog(std::string path, std::int64_t start_step) : path_(std::move(path)) {
  const bool resumed = start_step > 0 && std::filesystem::is_regular_file(path_);
  if (resumed) {
    const std::uintmax_t kept = bytes_to_keep(path_, start_step);
    std::error_code error;
    std::filesystem::resize_file(path_, kept, error);
    if (error) {
      errno = error.value();
      fail("truncate");
    }
  }
  file_.reset(std::fopen(path_.c_str(), resumed ? "ae" : "we"));
  if (!file_) fail("open");
}

void StepLog::fail(const char* operation) const {
  throw ddl::Error(ddl::ErrorCode::io,
                   fmt::format("--log_jsonl={}: {}: {}", path_, operation, std::strerror(errno)));
}

void StepLog::write(const StepReport& r) {
  const std::string line = fmt::format(
      "{{\"step\": {}, {}\"loss\": {}, \"ppl\": {}, \"lr\": {}, \"grad_norm\": {}, \"words\": {:.0f}, "
      "\"step_ms\": {}, \"words_per_s\": {}}}\n",
      r.step, r.phase > 0 ? fmt::format("\"phase\": {}, ", r.phase) : "",
      json_number(r.loss_sum / r.target_tokens), json_number(perplexity(r.loss_sum, r.target_tokens)),
      json_number(r.learning_rate), json_number(r.gradient_norm), r.words, json_number(r.seconds * 1e3, 6),
      json_number(r.words / r.seconds, 6));
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size()) fail("write");
  if (std::fflush(file_.get()) != 0) fail("write");
}

Progress::Progress(const ProgressSettings& settings, std::ostream& out, bool terminal)
    : settings_(settings), out_(out), terminal_(terminal) {
  if (!settings_.log_jsonl.empty()) log_.emplace(settings_.log_jsonl, settings_.start_step);
}

Progress::~Progress() { erase_bar(); }

void Progress::step(const StepReport& report) {
  if (log_) log_->write(report);
  for (Window* window : {&since_line_, &since_start_}) {
    window->steps += 1;
    window->seconds += report.seconds;
    window->loss_sum += report.loss_sum;
    window->target_tokens += report.target_tokens;
    window->words += report.words;
  }
  const bool last = settings_.end.unit() != LengthUnit::seconds && left(report.step) <= 0;
  const bool line = last || report.step % settings_.steps_per_stats == 0;
  if (line) print_line(report);
  seconds_since_bar_ += report.seconds;
  if (terminal_ && !last && (line || seconds_since_bar_ >= seconds_between_bars)) draw_bar(report);
}

void Progress::score(std::string_view metric, double value) {
  const auto found = std::ranges::find(scores_, metric, &std::pair<std::string, double>::first);
  if (found != scores_.end()) {
    found->second = value;
  } else {
    scores_.emplace_back(metric, value);
  }
}

void Progress::note(std::string_view line) {
  erase_bar();
  out_ << line << '\n' << std::flush;
}

void Progress::print_line(const StepReport& last) {
  const Window& w = since_line_;
  std::string text =
      fmt::format("  step {}{} lr {:g} step-time {:.2f}s wps {:.2f}K ppl {:.2f} gN {:.2f}", last.step,
                  last.phase > 0 ? fmt::format(" phase {}", last.phase) : "", last.learning_rate,
                  w.seconds / static_cast<double>(w.steps), w.words / w.seconds / 1e3,
                  perplexity(w.loss_sum, w.target_tokens), last.gradient_norm);
  for (const auto& [metric, value] : scores_) {
    text += fmt::format("{} {} {:.2f}", metric == scores_.front().first ? "" : ",", metric, value);
  }
  text += fmt::format(", eta {}", duration_text(seconds_left(last.step, w)));
  note(text);
  since_line_ = {};
}

void Progress::draw_bar(const StepReport& last) {
  constexpr int width = 40;
  const Length& end = settings_.end;
  const double share = end.amount() > 0 ? 1 - left(last.step) / of_end(end) : 1.0;
  const int filled = std::clamp(static_cast<int>(share * width), 0, width);
  const bool in_steps = end.unit() == LengthUnit::steps || end.unit() == LengthUnit::epochs;
  out_ << fmt::format("\r\x1b[K  [{:=<{}}{:{}}] {:3.0f}% step {}{}, eta {}", "", filled, "", width - filled,
                      share * 100, last.step, in_steps ? fmt::format("/{}", std::int64_t{end}) : "",
                      duration_text(seconds_left(last.step, since_start_)))
       << std::flush;
  bar_drawn_ = true;
  seconds_since_bar_ = 0;
}

double Progress::left(std::int64_t step) const {
  switch (settings_.end.unit()) {
    case LengthUnit::seconds:
      return settings_.end.amount() - settings_.start_seconds - since_start_.seconds;
    case LengthUnit::words:
      return settings_.end.amount() - settings_.start_words - since_start_.target_tokens;
    default:
      return static_cast<double>(settings_.end - step);
  }
}

double Progress::seconds_left(std::int64_t step, const Window& window) const {
  switch (settings_.end.unit()) {
    case LengthUnit::seconds:
      return std::max(0.0, left(step));
    case LengthUnit::words:
      return left(step) * window.seconds / window.target_tokens;
    default:
      return left(step) * window.seconds / static_cast<double>(window.steps);
  }
}

void Progress::erase_bar() {
  if (bar_drawn_) out_ << "\r\x1b[K" << std::flush;
  bar_drawn_ = false;
}

bool standard_output_is_terminal() {
  if (::isatty(STDOUT_FILENO) == 0) return false;
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return true;
  std::error_code error;
  const auto target = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", ::getppid()), error);
  const std::string name = target.string();
  return !error && (name.starts_with("/dev/pts/") || name.starts_with("/dev/tty") || name == "/dev/console");
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto s = static_cast<long long>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
}

}  // namespace nmt
