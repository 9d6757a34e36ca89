#include "nmt_example/training/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace nmt {
namespace {

double perplexity(double loss_sum, double target_tokens) { return std::exp(loss_sum / target_tokens); }

/// What `Progress::left` counts down from.
double of_end(const Length& end) {
  return end.unit() == LengthUnit::epochs ? static_cast<double>(std::int64_t{end}) : end.amount();
}

constexpr double seconds_between_bars = 0.1;

}  // namespace

std::vector<LogValue> log_values(const StepReport& r) {
  constexpr int of_times = 6;
  std::vector<LogValue> values;
  if (r.phase > 0) values.push_back({"phase", static_cast<double>(r.phase)});
  values.insert(values.end(), {{"loss", r.loss_sum / r.target_tokens},
                               {"ppl", perplexity(r.loss_sum, r.target_tokens)},
                               {"lr", r.learning_rate},
                               {"grad_norm", r.gradient_norm},
                               {"words", r.words},
                               {"step_ms", r.seconds * 1e3, of_times},
                               {"words_per_s", r.words / r.seconds, of_times}});
  if (r.hidden) values.push_back({"hidden", *r.hidden, of_times});
  return values;
}

std::vector<std::string> log_columns(const std::vector<std::string>& scores) {
  std::vector<std::string> columns;
  for (const LogValue& value : log_values({.phase = 1, .hidden = 0.0})) columns.push_back(value.name);
  columns.insert(columns.end(), scores.begin(), scores.end());
  return columns;
}

Progress::Progress(const ProgressSettings& settings, std::ostream& out, bool terminal)
    : settings_(settings), out_(out), terminal_(terminal) {
  const LogFiles& files = settings_.logs;
  const std::int64_t start = settings_.start_step;
  if (!files.jsonl.empty()) logs_.push_back(json_lines(files.jsonl, start));
  if (!files.csv.empty()) logs_.push_back(comma_separated(files.csv, start, log_columns(settings_.scores)));
  if (!files.tensorboard.empty()) logs_.push_back(tensorboard_events(files.tensorboard, start));
}

Progress::~Progress() { erase_bar(); }

void Progress::step(const StepReport& report) {
  log(report.step, log_values(report));
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

void Progress::log(std::int64_t step, std::span<const LogValue> values) {
  for (const auto& writer : logs_) writer->write(step, values);
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
