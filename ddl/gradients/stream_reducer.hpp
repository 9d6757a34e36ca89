#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/gradients/bucket_layout.hpp"
#include "ddl/gradients/gradient_queue.hpp"
#include "ddl/gradients/learned_buckets.hpp"
#include "ddl/gradients/step_ledger.hpp"

namespace ddl {

/// One parameter's gradient in the device's memory.
struct StreamGradient {
  std::string name;
  float* values = nullptr;
  std::size_t count = 0;
};

struct StreamReducerOptions {
  GradientKind gradients;
  std::size_t bucket_bytes = 0;
  bool leave_sums = false;
  bool micro_batches = false;
  DataType wire = DataType::f32;
};

/// The steps of a reducer of gradients on a device: what it queues, and when. No call but `result`, and the
/// first step's `finish`, waits for the device. See DeviceGradientReducer. Not thread-safe.
class StreamReducer {
 public:
  using Stream = GradientQueue::Stream;

  /// Collective. Errors as GradientReducer's.
  StreamReducer(Context& context, GradientQueue& queue, std::vector<StreamGradient> gradients,
                StreamReducerOptions options);
  StreamReducer(const StreamReducer&) = delete;
  StreamReducer& operator=(const StreamReducer&) = delete;

  void begin(double weight);
  void ready(std::size_t index, Stream stream);
  void absent(std::size_t index);
  void finish(std::optional<double> weight, Stream stream);
  [[nodiscard]] const gradient_pass::Outcome* outcome() const noexcept { return outcome_; }
  ReducedStep result();

  [[nodiscard]] bool& no_sync() noexcept { return no_sync_; }
  [[nodiscard]] std::string state() const;
  void restore(std::string_view json);
  /// What 16-bit wires owe to the next step, of each gradient; empty for f32.
  [[nodiscard]] std::vector<StreamGradient> residuals() const;
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t buckets() const noexcept { return buckets_.size(); }
  [[nodiscard]] std::size_t largest_bucket() const noexcept;

 private:
  struct Bucket {
    BucketLayout layout;
    gradient_pass::Bucket on_device = {};
    bool is_packed = false;     // is not where the gradients are
    std::size_t gradients = 0;  // that have a piece in it
    std::size_t missing = 0;    // of them in this step
    double* squares = nullptr;
  };

  static Error invalid(const std::string& message);
  [[nodiscard]] bool is_mean() const noexcept { return options_.gradients == GradientKind::mean; }
  [[nodiscard]] bool is_learned() const noexcept { return !learned_.order.empty(); }
  void check() const;
  void agree();
  void make_buckets();
  [[nodiscard]] std::vector<BucketLayout> layouts() const;
  [[nodiscard]] bool lies_in_one_run(const BucketLayout& layout) const;
  void place_buckets();
  void write_pieces();
  [[nodiscard]] std::size_t place_of(std::size_t gradient) const noexcept;
  /// What travels: between hosts only.
  [[nodiscard]] DataType wire() const noexcept;

  void report(const char* name, std::size_t index, bool has_value);
  void follow_reports();
  void start_complete();
  void start(Bucket& bucket);
  void unpack(const Bucket& bucket);
  void send_weight(double weight);
  void end_micro_batch(Stream stream);
  [[nodiscard]] std::optional<Error> problem() const;
  void end_step(Stream stream);
  void add_up_squares();
  void learn();

  Context& context_;
  GradientQueue& queue_;
  std::vector<StreamGradient> gradients_;
  StreamReducerOptions options_;
  LearnedBuckets learned_;
  std::size_t bytes_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<std::size_t>> buckets_of_;  // of each gradient

  // In the device's memory.
  std::byte* packed_ = nullptr;
  std::size_t packed_bytes_ = 0;
  gradient_pass::Piece* pieces_ = nullptr;
  std::size_t piece_room_ = 0;
  float* accumulated_ = nullptr;  // of all gradients, in order of registration
  float* residual_ = nullptr;     // the same
  double* squares_ = nullptr;     // of each bucket
  std::size_t square_room_ = 0;
  ExactSquares* exact_squares_ = nullptr;  // in place of those, in reproducible contexts; zeros between steps
  double* weight_sum_ = nullptr;
  double* square_sum_ = nullptr;
  gradient_pass::Outcome* outcome_ = nullptr;

  // Of a step.
  StepLedger ledger_;
  bool no_sync_ = false;
  bool begun_ = false;
  double weight_ = 0;         // of this micro-batch
  double weight_before_ = 0;  // of those before it
  bool has_sent_weight_ = false;
  bool has_accumulated_ = false;
  std::size_t started_ = 0;
  std::vector<Stream> reported_on_;  // since the queue has followed them
  std::optional<Error> kept_problem_;
  bool is_finished_ = false;  // a step, whose result was not asked for yet
};

}  // namespace ddl
