#include "nmt_example/training/lstm_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/training/evaluation.hpp"
#include "nmt_example/training/setup.hpp"

namespace nmt {
namespace {

/// The first passes allocate memory and record graphs.
constexpr int untimed_passes = 3, timed_passes = 5;
/// Words of each sentence whose gradients are compared. Further steps would amplify rounding: in a new model
/// of 4 layers of 1,024 units, bf16 changes gradients by 0.008 of their norm over 4 steps, by 0.2 over 30.
constexpr std::size_t compared_steps = 4;

/// The relative difference of gradients that is taken for rounding.
double rounding(const Options& options, const Backend& backend) {
  switch (activation_type(options, backend)) {
    case ddl::DataType::bf16:
      return 0.1;
    case ddl::DataType::f16:
      return 0.02;
    default:
      return options.dtype == Dtype::tf32 ? 0.02 : 0.001;
  }
}

/// Sentences from all over the text.
Batch batch_of(const Options& options, const Dataset& train) {
  const std::size_t mean_length = std::max<std::size_t>(train.tokens() / train.size(), 1);
  const std::size_t sentences =
      options.batch_words > 0
          ? std::max<std::size_t>(static_cast<std::size_t>(options.batch_words) / mean_length, 1)
          : static_cast<std::size_t>(options.batch_size);
  const auto micro = static_cast<std::size_t>(options.micro_batch_size);
  const std::size_t most = micro > 0 ? std::min(micro, sentences) : sentences;
  const std::size_t count = std::min(most, train.size());
  std::vector<std::size_t> samples;
  for (std::size_t i = 0; i < count; ++i) samples.push_back(i * train.size() / count);
  Batch batch;
  fill_batch(train, samples, batch);
  return batch;
}

/// Without what comes after the first words of the sentences.
Batch beginning_of(Batch batch) {
  const auto cut = [](std::size_t& steps, std::vector<std::int32_t>& lengths) {
    steps = std::min(steps, compared_steps);
    for (std::int32_t& length : lengths) length = std::min(length, static_cast<std::int32_t>(steps));
  };
  cut(batch.source_steps, batch.source_lengths);
  cut(batch.target_steps, batch.target_lengths);
  batch.source.resize(batch.source_steps * batch.size());
  batch.target_in.resize(batch.target_steps * batch.size());
  batch.target_out.resize(batch.target_steps * batch.size());
  return batch;
}

/// Passes of a model over batches, by the method that its backend uses. They do without the loss scale, which
/// at first may be too large for gradients of f16.
class Trial {
 public:
  Trial(const Options& options, Backend& backend, Model& model)
      : options_(options),
        backend_(backend),
        model_(model),
        memory_(backend.allocate(2 * sizeof(double))),
        sums_(memory_.get(), 1, 2, 2, ddl::DataType::f64),
        scale_(model.scale_loss(nullptr)) {}
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() { model_.scale_loss(scale_); }

  /// Of a pass.
  [[nodiscard]] double seconds(const Batch& batch) {
    using Clock = std::chrono::steady_clock;
    for (int i = 0; i < untimed_passes; ++i) pass(batch);
    wait();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < timed_passes; ++i) pass(batch);
    wait();
    return std::chrono::duration<double>(Clock::now() - begin).count() / timed_passes;
  }

  [[nodiscard]] std::vector<float> gradients(const Batch& batch) {
    pass(batch);
    const Tensor gradients = model_.parameters().gradients();
    std::vector<float> values(static_cast<std::size_t>(gradients.size()));
    backend_.download(gradients, std::span(values));
    return values;
  }

 private:
  void pass(const Batch& batch) {
    model_.forward_backward(
        model_.stage(view_of(batch), dropout_settings(options_, 0)), options_.label_smoothing,
        [](std::size_t) {}, sums_);
  }
  void wait() {
    double values[2];
    backend_.download(sums_, std::span(values));
  }

  const Options& options_;
  Backend& backend_;
  Model& model_;
  std::shared_ptr<void> memory_;
  Tensor sums_;
  const double* scale_;
};

/// |actual - expected| / |expected|; not a number if any element is none.
double difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  double squares = 0, all = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = static_cast<double>(expected[i]), d = static_cast<double>(actual[i]) - e;
    squares += d * d;
    all += e * e;
  }
  return std::sqrt(squares / std::max(all, 1e-30));
}

/// `others`: methods besides the loop.
LstmChoice fastest(const Options& options, Backend& backend, Model& model, const Dataset& train,
                   std::span<const LstmMethod> others) {
  const Batch batch = batch_of(options, train), beginning = beginning_of(batch);
  Trial trial(options, backend, model);
  double least = trial.seconds(batch);
  const std::vector<float> expected = trial.gradients(beginning);
  const double most = rounding(options, backend);
  LstmChoice choice;
  std::string times = fmt::format("loop {:.1f} ms", 1e3 * least);
  for (const LstmMethod method : others) {
    times += fmt::format(", {} ", name_of(method));
    backend.use_lstm(method);
    try {
      const double seconds = trial.seconds(batch);
      const double differs = difference(trial.gradients(beginning), expected);
      times += fmt::format("{:.1f} ms", 1e3 * seconds);
      if (!std::isfinite(differs)) {
        times += " (not taken: there are gradients that are not finite, which cannot be compared)";
      } else if (differs > most) {
        times += fmt::format(
            " (not taken: its gradients differ by {:.3g} of their norm over {} words, expected {} at most)",
            differs, compared_steps, most);
      } else if (seconds < least) {
        choice.method = method;
        least = seconds;
      }
    } catch (const ddl::Error& error) {
      if (error.code() != ddl::ErrorCode::unsupported) throw;
      times += error.what();
    }
  }
  choice.reason = fmt::format("LSTM layers by {}; a batch takes: {}", name_of(choice.method), times);
  return choice;
}

/// The methods besides the loop that all ranks' backends have. `why_not` gets what they are without.
std::vector<LstmMethod> methods_of_all(ddl::Context& context, const Options& options, Backend& backend,
                                       std::string& why_not) {
  std::vector<LstmMethod> methods;
  for (const LstmMethod method : {LstmMethod::wavefront, LstmMethod::cudnn}) {
    const bool is_graphless = method == LstmMethod::cudnn && options.step_graph;
    const std::string problem = is_graphless ? "it cannot be part of --step_graph" : backend.use_lstm(method);
    double ranks_without[1] = {problem.empty() ? 0.0 : 1.0};
    context.communicator().all_reduce(std::span(ranks_without));
    if (ranks_without[0] == 0) {
      methods.push_back(method);
    } else {
      why_not += fmt::format(", without {}: {}", name_of(method),
                             problem.empty() ? "other ranks do not have it" : problem);
    }
  }
  backend.use_lstm(LstmMethod::loop);
  return methods;
}

}  // namespace

LstmChoice choose_lstm(ddl::Context& context, const Options& options, Backend& backend, Model& model,
                       const Dataset& train, const std::string& saved) {
  if (options.device == DeviceKind::cpu || options.unit_type != UnitType::lstm) return {};
  std::string why_not;
  const std::vector<LstmMethod> others = methods_of_all(context, options, backend, why_not);
  LstmChoice choice;
  const auto known = std::ranges::find(choices_of<LstmMethod>, saved, &Choice<LstmMethod>::name);
  const bool goes_on = known != choices_of<LstmMethod>.end() &&
                       (known->value == LstmMethod::loop || std::ranges::count(others, known->value) > 0);
  if (goes_on) {
    choice = {known->value, fmt::format("LSTM layers by {}, as in the checkpoint", saved)};
  } else if (others.empty()) {
    choice.reason = "LSTM layers by loop";
  } else {
    context.root_only("choose how to compute LSTM layers",
                      [&] { choice = fastest(options, backend, model, train, others); });
    const std::string name = context.broadcast_string(name_of(choice.method));
    choice.method = std::ranges::find(choices_of<LstmMethod>, name, &Choice<LstmMethod>::name)->value;
  }
  if (!goes_on) choice.reason += why_not;
  backend.use_lstm(choice.method);
  return choice;
}

}  // namespace nmt
