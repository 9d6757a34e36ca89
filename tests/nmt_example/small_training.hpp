#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "nmt_example/data/number_corpus.hpp"
#include "nmt_example/training/host_mirror.hpp"
#include "nmt_example/training/saved_run.hpp"
#include "nmt_example/training/setup.hpp"
#include "nmt_example/training/training_step.hpp"

namespace nmt::test {

inline Options small_training_options() {
  Options options;
  options.num_units = 16;
  options.num_layers = 2;
  options.encoder_type = EncoderType::bi;
  options.attention = AttentionKind::scaled_luong;
  options.dropout = 0.2;
  options.label_smoothing = 0.1;
  options.optimizer = OptimizerKind::adam;
  options.learning_rate = 0.002;
  options.batch_size = 8;
  options.num_buckets = 4;
  return options;
}

/// Beginnings of sentences, of all lengths up to some 12 pieces.
inline ParallelText short_text(std::size_t pairs) {
  ParallelText text = number_corpus(CorpusSplit::train, pairs, 3);
  for (std::size_t i = 0; i < pairs; ++i) {
    text.source[i].resize(1 + 5 * i % 23);
    text.target[i].resize(1 + 7 * i % 19);
  }
  return text;
}

/// One rank's part of a small training run on a given backend, without files.
struct SmallTraining {
  SmallTraining(ddl::Context& context, const Options& options, Backend& backend_,
                ParallelText text_ = short_text(200))
      : text(std::move(text_)),
        vocabularies{Vocabulary::train(text.source, 60), Vocabulary::train(text.target, 60)},
        dataset(encode(text, vocabularies.source, vocabularies.target, 30, 30)),
        backend(backend_),
        model(backend, model_shape(options, vocabularies.source.size(), vocabularies.target.size()),
              {options.batch_size, static_cast<std::int64_t>(dataset.longest_source()),
               static_cast<std::int64_t>(dataset.longest_target()) + 1},
              nullptr, model_types(options, backend)),
        optimizer(backend, model.parameters(), options),
        step(context, options, dataset, backend, connect_devices(context, backend), model, optimizer) {
    model.parameters().initialize(backend, InitOp::uniform, 0.1, 1);
  }

  /// Runs the next steps; returns the loss per target word of each.
  std::vector<double> losses(int steps) {
    std::vector<double> result;
    for (int i = 0; i < steps; ++i) {
      const StepReport report = step.run().report;
      result.push_back(report.loss_sum / report.target_tokens);
    }
    return result;
  }
  std::vector<float> parameters() {
    std::vector<float> values(static_cast<std::size_t>(model.parameters().layout().extent));
    backend.download(model.parameters().values(), std::span<float>(values));
    return values;
  }

  ParallelText text;
  VocabularyPair vocabularies;
  Dataset dataset;
  Backend& backend;
  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

inline ddl::InProcessOptions quiet_ranks() {
  ddl::InProcessOptions settings;
  settings.context.debug_level = 0;
  settings.context.deadline = std::chrono::seconds(60);
  return settings;
}

}  // namespace nmt::test
