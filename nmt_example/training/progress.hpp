#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nmt_example/options/length.hpp"
#include "nmt_example/training/run_log.hpp"

namespace nmt {

/// The results of one step, summed over all ranks.
struct StepReport {
  std::int64_t step = 0;  ///< Steps done, this one included: the first is 1.
  double learning_rate = 0;
  double loss_sum = 0;  ///< Cross-entropy in nats, summed over the target tokens.
  double target_tokens = 0;
  double words = 0;          ///< Source and target tokens.
  double gradient_norm = 0;  ///< Before clipping.
  double seconds = 0;        ///< Wall time of the step.
  int phase = 0;             ///< 1 or 2 in a training of two phases, else 0.
  /// The share of the time in which gradients were exchanged that this rank did not wait for.
  std::optional<double> hidden = {};
};

/// The files of a run's log; empty: none.
struct LogFiles {
  std::string jsonl = {};
  std::string csv = {};
  std::string tensorboard = {};  ///< A directory.

  [[nodiscard]] bool any() const { return !jsonl.empty() || !csv.empty() || !tensorboard.empty(); }
};

struct ProgressSettings {
  std::int64_t start_step = 0;  ///< Steps done before this run: 0, or the checkpoint's.
  double start_words = 0;       ///< Target words before this run.
  double start_seconds = 0;     ///< Time before this run.
  Length end = 0;               ///< Of the whole training; for the time left.
  std::int64_t steps_per_stats = 100;
  LogFiles logs = {};
  std::vector<std::string> scores = {};  ///< The names of `Progress::log`'s values.
};

/// What logs have of a step: phase (of a training of two), loss (mean cross-entropy per target token), ppl,
/// lr, grad_norm, words, step_ms, words_per_s, and hidden, where it is known.
std::vector<LogValue> log_values(const StepReport& report);
/// Their names, followed by those of scores.
std::vector<std::string> log_columns(const std::vector<std::string>& scores);

/// Shows a person how training goes: every `steps_per_stats` steps, and after the last one, a line
/// `  step 100 lr 0.001 step-time 0.11s wps 51.53K ppl 1733.09 gN 14.20 bleu 0.00, eta 3m12s`
/// with means since the previous line (lr and gN: of the last step; scores: once there are some), and on a
/// terminal a bar below it. Writes the run's logs. For one rank; not thread-safe. Errors: `LogWriter`'s.
class Progress {
 public:
  /// `terminal`: whether `out` is one (`standard_output_is_terminal`), for the bar. `out` must outlive this.
  Progress(const ProgressSettings& settings, std::ostream& out, bool terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepReport& report);
  /// The newest score of a metric, shown from the next line on.
  void score(std::string_view metric, double value);
  /// Writes scores of the model after `step` to the logs.
  void log(std::int64_t step, std::span<const LogValue> values);
  /// Prints a line of its own, after erasing the bar.
  void note(std::string_view line);

 private:
  void print_line(const StepReport& last);
  void draw_bar(const StepReport& last);
  void erase_bar();

  struct Window {
    std::int64_t steps = 0;
    double seconds = 0;
    double loss_sum = 0;
    double target_tokens = 0;
    double words = 0;
  };
  /// Until the end, in its unit; steps for epochs.
  [[nodiscard]] double left(std::int64_t step) const;
  /// Until the end, at the window's speed.
  [[nodiscard]] double seconds_left(std::int64_t step, const Window& window) const;

  ProgressSettings settings_;
  std::ostream& out_;
  bool terminal_;
  bool bar_drawn_ = false;
  double seconds_since_bar_ = 0;
  Window since_line_;
  Window since_start_;
  std::vector<std::pair<std::string, double>> scores_;
  std::vector<std::unique_ptr<LogWriter>> logs_;
};

/// Whether standard output ends at a terminal. Open MPI gives each rank a pseudo-terminal even if its own
/// output goes to a file; under it, mpirun's standard output decides.
bool standard_output_is_terminal();

/// "45s", "3m12s" or "2h05m".
std::string duration_text(double seconds);

}  // namespace nmt
