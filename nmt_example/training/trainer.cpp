#include "nmt_example/training/trainer.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <utility>

#include "ddl/checkpoint.hpp"
#include "ddl/log.hpp"
#include "nmt_example/training/batch_fit.hpp"
#include "nmt_example/training/phases.hpp"
#include "nmt_example/training/setup.hpp"
#include "nmt_example/training/training_run.hpp"

namespace nmt {
namespace {

ddl::CheckpointOptions checkpoint_options(const Options& options) {
  return {.keep = static_cast<std::size_t>(options.num_keep_ckpts),
          .sharded = options.sharded_checkpoints,
          .background = options.background_checkpoints,
          .handle_signals = true};
}

/// `last_step`, `given_vocabularies`: see `train_part`.
std::optional<double> train(ddl::Context& context, const ParsedOptions& parsed,
                            std::optional<std::int64_t> last_step, const VocabularyPair* given_vocabularies,
                            std::ostream& out) {
  std::unique_ptr<Backend> backend = make_backend(context, parsed.options);
  Profile* profile = nullptr;
  if (parsed.options.profile) {
    auto profiled = std::make_unique<Profile>(std::move(backend));
    profile = profiled.get();
    backend = std::move(profiled);
  }
  std::optional<SavedRun> saved;
  if (!parsed.options.out_dir.empty()) {
    ddl::Checkpoint checkpoints(context, parsed.options.out_dir);
    saved = newest_run(context, checkpoints);
  }
  Options options = parsed.options;
  context.on_all_ranks("check the options", [&] {
    if (saved) options = options_of_run(*saved, parsed);
    validate(options);
  });
  const std::string without_effect = flags_without_effect(options, parsed);
  if (context.is_root() && !without_effect.empty()) context.log().notice(without_effect);
  if (saved) {
    context.root_only("print what differs from the checkpoint", [&] {
      for (const std::string& change :
           changes_from_saved(options_from_json(saved->state().options_json), options, parsed)) {
        fmt::print(out, "{}\n", change);
      }
    });
  }
  std::optional<ddl::Checkpoint> checkpoint;
  if (!options.out_dir.empty()) checkpoint.emplace(context, options.out_dir, checkpoint_options(options));
  Texts texts = load_texts(context, options);
  VocabularyPair vocabularies = saved                ? saved->vocabularies()
                                : given_vocabularies ? *given_vocabularies
                                                     : make_vocabularies(context, options);
  GivenEmbeddings given;
  if (!saved) {
    context.on_all_ranks("read the given vectors", [&] {
      given = given_embeddings(options, vocabularies);
      if (given.source) options.src_embed_size = static_cast<int>(given.source->size);
      if (given.target) options.tgt_embed_size = static_cast<int>(given.target->size);
      if (given.source && options.share_vocab) options.tgt_embed_size = options.src_embed_size;
      validate(options);
    });
  }
  Dataset train_set = load_training_data(context, options, vocabularies);
  std::optional<Dataset> dev_set;
  context.on_all_ranks("encode the dev text", [&] {
    check_sampled_words(options, vocabularies);
    if (texts.dev.size() > 0) {
      dev_set.emplace(encode(texts.dev, vocabularies.source, vocabularies.target,
                             static_cast<std::size_t>(options.src_max_len_infer),
                             static_cast<std::size_t>(options.tgt_max_len_infer)));
    }
    // BLEU compares with joined translations.
    for (ParallelText* text : {&texts.dev, &texts.test}) {
      for (std::string& line : text->target) line = vocabularies.target.join(line);
    }
    check_enough_for_ranks(context, options, train_set);
  });
  check_same_data(context, train_set);
  const ModelShape shape = model_shape(options, vocabularies.source.size(), vocabularies.target.size());
  if (options.mini_batch_fit && !(saved && options_from_json(saved->state().options_json).mini_batch_fit)) {
    const std::string found = fit_batch(context, options, train_set, *backend, shape);
    context.root_only("say which batch was found", [&] { fmt::print(out, "{}\n", found); });
  } else {
    check_batch(context, options, train_set, *backend, shape);
  }
  Epochs epochs = saved ? saved->state().epochs : Epochs();
  context.on_all_ranks("count the steps of an epoch", [&] {
    epochs.go_on(saved ? saved->state().step : 0, steps_per_epoch(context, options, train_set));
    set_steps_of_epochs(options, epochs, context.size());
    validate(options);
  });
  TrainingRun run(context, options, out, *backend,
                  {std::move(texts), std::move(vocabularies), std::move(train_set), std::move(dev_set),
                   std::move(given), std::move(epochs), last_step},
                  checkpoint ? &*checkpoint : nullptr, profile);
  return run.run(saved ? &*saved : nullptr);
}

}  // namespace

void train(ddl::Context& context, const ParsedOptions& parsed, std::ostream& out) {
  train(context, parsed, std::nullopt, nullptr, out);
}

std::optional<double> train_part(ddl::Context& context, const ParsedOptions& parsed, std::int64_t last_step,
                                 const VocabularyPair* vocabularies, std::ostream& out) {
  return train(context, parsed, last_step, vocabularies, out);
}

}  // namespace nmt
