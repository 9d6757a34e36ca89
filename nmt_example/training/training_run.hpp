#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/context.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/device_link.hpp"
#include "nmt_example/backend/profile.hpp"
#include "nmt_example/data/dataset.hpp"
#include "nmt_example/data/sentence_noise.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/training/corpus.hpp"
#include "nmt_example/training/epochs.hpp"
#include "nmt_example/training/moving_average.hpp"
#include "nmt_example/training/optimizer.hpp"
#include "nmt_example/training/progress.hpp"
#include "nmt_example/training/saved_run.hpp"
#include "nmt_example/training/scorer.hpp"
#include "nmt_example/training/training_step.hpp"

namespace nmt {

/// What a run is given besides its options: what is read before its model is made.
struct RunInputs {
  Texts texts;
  VocabularyPair vocabularies;
  Dataset train;
  std::optional<Dataset> dev;
  GivenEmbeddings given;  ///< Vectors that a new model's embeddings begin with.
  Epochs epochs;
  std::optional<std::int64_t> last_step;  ///< See `train_part`.
};

/// One training run: steps, and between them evaluations, checkpoints and logs. All functions are collective.
/// Not thread-safe.
class TrainingRun {
 public:
  /// Makes the model and what trains it. The arguments must outlive it, except for `inputs`. `checkpoint`:
  /// null without
  /// --out_dir; `profile`: null without --profile.
  TrainingRun(ddl::Context& context, const Options& options, std::ostream& out, Backend& backend,
              RunInputs inputs, ddl::Checkpoint* checkpoint, Profile* profile);

  /// Trains to the end, from `saved` if that is given. Returns what `train_part` does.
  std::optional<double> run(const SavedRun* saved);

 private:
  using Clock = std::chrono::steady_clock;

  // The run: training_run.cpp.
  void queue_steps();
  void take(const std::vector<TrainingStep::Result>& results);
  [[nodiscard]] std::string evaluate_and_save(ddl::CheckpointRequest request, bool out_of_time);
  void end(ddl::CheckpointRequest request, const std::string& stopped);
  [[nodiscard]] bool is_complete() const;
  [[nodiscard]] double seconds_left() const;
  [[nodiscard]] double seconds_so_far() const;
  [[nodiscard]] std::int64_t steps_to_end() const;
  [[nodiscard]] std::int64_t steps_to_event(std::initializer_list<std::int64_t> periods) const;

  // Its start, also from a checkpoint: training_run_start.cpp.
  void start(const SavedRun* saved);
  void upload_given(Side side, std::optional<EmbeddingVectors>& vectors);
  void restore(const SavedRun& saved);
  void go_on_from(const std::string& checkpoint);
  void roll_back(const std::string& diverged);
  void prepare_out_dir();
  void print_header();
  void open_progress();

  // Evaluations, logs and checkpoints: training_run_results.cpp.
  [[nodiscard]] bool translates() const noexcept { return !options_.language_model; }
  [[nodiscard]] std::unique_ptr<MovingAverage::InModel> averages_in_model() const;
  void report_dev_loss();
  bool score_dev();
  void note_scores(bool perplexity, bool metrics);
  void report_test_loss();
  void score_at_end();
  void save();
  void write_logs(const std::function<void(Progress&)>& write);
  void log_scores(const std::string& prefix, std::span<const std::pair<std::string, double>> scores);
  [[nodiscard]] LogFiles log_files() const;
  [[nodiscard]] std::vector<std::string> names_of_scores() const;
  [[nodiscard]] MovingAverage* average() { return average_ ? &*average_ : nullptr; }

  ddl::Context& context_;
  const Options& options_;
  std::ostream& out_;
  RunInputs inputs_;
  double most_words_;  // that a step of all ranks together has
  Backend& backend_;
  double memory_before_;              // resident, before the model
  std::shared_ptr<DeviceLink> link_;  // between devices
  Model model_;
  Optimizer optimizer_;
  std::optional<SentenceNoise> noise_;
  std::optional<MovingAverage> average_;  // with --ema_decay
  TrainingStep step_;
  Scorer scorer_;
  ddl::Checkpoint* checkpoint_;
  Profile* profile_;
  std::int64_t eval_steps_, score_steps_;  // between evaluations, and between translations of the dev set

  RunState state_;
  std::optional<Progress> progress_;  // on rank 0
  double dev_perplexity_ = 0;         // the newest
  bool is_saved_ = false;             // as it is now
  double seconds_before_ = 0;         // of earlier runs
  Clock::time_point begin_;
  double queueing_seconds_ = 0;
  std::int64_t queued_steps_ = 0;  // that these seconds are of
  bool has_queued_ = false;
  std::string how_lstm_;  // are computed, for the header
};

}  // namespace nmt
