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
/// The relative difference of gradients that is taken for rounding; between 16-bit methods it is about 0.01.
constexpr double rounding = 0.05;

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

struct Trial {
  double seconds = 0;  // of a pass
  std::vector<float> gradients;
};

Trial trial_of(const Options& options, Backend& backend, Model& model, const Batch& batch) {
  const std::shared_ptr<void> memory = backend.allocate(2 * sizeof(double));
  const Tensor sums(memory.get(), 1, 2, 2, ddl::DataType::f64);
  const auto pass = [&] {
    model.forward_backward(
        view_of(batch), dropout_settings(options, 0), options.label_smoothing, [](std::size_t) {}, sums);
  };
  const auto wait = [&] {
    double values[2];
    backend.download(sums, std::span(values));
  };
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < untimed_passes; ++i) pass();
  wait();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < timed_passes; ++i) pass();
  wait();
  Trial trial{std::chrono::duration<double>(Clock::now() - begin).count() / timed_passes, {}};
  const Tensor gradients = model.parameters().gradients();
  trial.gradients.resize(static_cast<std::size_t>(gradients.size()));
  backend.download(gradients, std::span(trial.gradients));
  return trial;
}

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

LstmChoice faster(const Options& options, Backend& backend, Model& model, const Dataset& train) {
  const Batch batch = batch_of(options, train);
  const Trial loop = trial_of(options, backend, model, batch);
  LstmChoice choice;
  std::string other;
  backend.use_lstm(LstmMethod::cudnn);
  try {
    const Trial cudnn = trial_of(options, backend, model, batch);
    const double differs = difference(cudnn.gradients, loop.gradients);
    other = fmt::format("{:.1f} ms", 1e3 * cudnn.seconds);
    if (!(differs <= rounding)) {
      other += fmt::format(" with other gradients (difference {:.3g})", differs);
    } else if (cudnn.seconds < loop.seconds) {
      choice.method = LstmMethod::cudnn;
    }
  } catch (const ddl::Error& error) {
    if (error.code() != ddl::ErrorCode::unsupported) throw;
    other = error.what();
  }
  choice.reason = fmt::format("LSTM layers by {}; a batch takes: loop {:.1f} ms, cudnn {}",
                              name_of(choice.method), 1e3 * loop.seconds, other);
  return choice;
}

}  // namespace

LstmChoice choose_lstm(ddl::Context& context, const Options& options, Backend& backend, Model& model,
                       const Dataset& train, const std::string& saved) {
  if (options.device == DeviceKind::cpu || options.unit_type != UnitType::lstm) return {};
  const std::string why_not = backend.use_lstm(LstmMethod::cudnn);
  double ranks_without[1] = {why_not.empty() ? 0.0 : 1.0};
  context.communicator().all_reduce(std::span(ranks_without));
  const bool has_cudnn = ranks_without[0] == 0;
  backend.use_lstm(LstmMethod::loop);
  LstmChoice choice;
  const auto known = std::ranges::find(choices_of<LstmMethod>, saved, &Choice<LstmMethod>::name);
  const bool goes_on = known != choices_of<LstmMethod>.end() &&
                       (known->value == LstmMethod::loop || (known->value == LstmMethod::cudnn && has_cudnn));
  if (goes_on) {
    choice = {known->value, fmt::format("LSTM layers by {}, as in the checkpoint", saved)};
  } else if (!has_cudnn) {
    choice.reason = "LSTM layers by loop, without cudnn: " +
                    (why_not.empty() ? std::string("other ranks do not have it") : why_not);
  } else {
    context.root_only("choose how to compute LSTM layers",
                      [&] { choice = faster(options, backend, model, train); });
    const std::string name = context.broadcast_string(name_of(choice.method));
    choice.method = std::ranges::find(choices_of<LstmMethod>, name, &Choice<LstmMethod>::name)->value;
  }
  backend.use_lstm(choice.method);
  return choice;
}

}  // namespace nmt
