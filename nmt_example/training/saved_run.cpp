#include "nmt_example/training/saved_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ddl/error.hpp"
#include "ddl/log.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/json_text.hpp"
#include "nmt_example/training/host_mirror.hpp"

namespace nmt {
namespace {

constexpr const char* source_file = "source.vocabulary";
constexpr const char* target_file = "target.vocabulary";
constexpr const char* model_group = "model";
constexpr const char* average_group = "average";
constexpr const char* reducer_group = "reducer";

/// With the numbers of layers, what must stay as in the checkpoint, which also holds the vocabularies.
constexpr std::string_view model_flags[] = {"num_units",
                                            "embed_prefix",
                                            "src_embed_size",
                                            "tgt_embed_size",
                                            "encoder_type",
                                            "unit_type",
                                            "residual",
                                            "language_model",
                                            "attention",
                                            "attention_architecture",
                                            "attention_units",
                                            "output_attention",
                                            "pass_hidden_state",
                                            "feed_context",
                                            "tie_output",
                                            "output_bias",
                                            "forget_bias",
                                            "share_vocab",
                                            "optimizer",
                                            "subword_option",
                                            "vocab_size",
                                            "sos",
                                            "eos",
                                            "check_special_token",
                                            "use_char_encode"};

/// The optimiser's state on the host.
class Moments {
 public:
  Moments(Backend& backend, const Optimizer& optimizer)
      : states_(optimizer.state()), whole_(optimizer.is_whole()), mirror_(backend, views(states_)) {}

  [[nodiscard]] bool empty() const noexcept { return states_.empty(); }
  HostMirror& mirror() noexcept { return mirror_; }

  [[nodiscard]] ddl::CheckpointGroup group() const {
    ddl::CheckpointGroup group;
    const std::vector<ddl::NamedTensor> tensors = mirror_.tensors();
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const Optimizer::State& state = states_[i];
      const std::vector<std::int64_t> shape = {state.rows, state.cols};
      if (whole_) {
        group.whole.push_back({state.name, tensors[i].type, shape, tensors[i].bytes});
      } else {
        group.slices.push_back(
            {state.name, tensors[i].type, shape, static_cast<std::uint64_t>(state.first), tensors[i].bytes});
      }
    }
    return group;
  }

 private:
  static std::vector<NamedView> views(const std::vector<Optimizer::State>& states) {
    std::vector<NamedView> views;
    for (const Optimizer::State& state : states) views.push_back({state.name, state.value});
    return views;
  }

  std::vector<Optimizer::State> states_;
  bool whole_;
  HostMirror mirror_;
};

ddl::CheckpointContents contents_of(const RunState& state, const VocabularyPair& vocabularies) {
  ddl::CheckpointContents contents;
  contents.state = state.to_json();
  contents.files[source_file] = vocabularies.source.serialize();
  contents.files[target_file] = vocabularies.target.serialize();
  return contents;
}

}  // namespace

std::string RunState::to_json() const {
  using nlohmann::ordered_json;
  ordered_json json = {{"step", step}};
  if (!sampler.empty()) json["sampler"] = ordered_json::parse(sampler);
  if (!reducer.empty()) json["reducer"] = ordered_json::parse(reducer);
  if (!loss_scale.empty()) json["loss_scale"] = ordered_json::parse(loss_scale);
  json["best"] = ordered_json::object();
  for (const auto& [name, score] : best) {
    json["best"][name] = {{"score", score.score}, {"step", score.step}};
  }
  if (!rnn.empty()) json["rnn"] = rnn;
  json["target_words"] = target_words;
  json["seconds"] = seconds;
  json["epochs"] = {{"step", epochs.step}, {"done", epochs.done}, {"steps_each", epochs.steps_each}};
  if (!early_stopping.metric.empty()) {
    json["early_stopping"] = {{"metric", early_stopping.metric},
                              {"best", early_stopping.best},
                              {"step", early_stopping.step},
                              {"evaluations", early_stopping.evaluations}};
  }
  json["rollbacks"] = rollbacks;
  json["options"] = ordered_json::parse(options_json);
  return json.dump(1);
}

RunState RunState::from_json(const std::string& text) {
  return read_json(text, "the checkpoint's state.json is not one of ddl_nmt", [](const auto& json) {
    using Steps = std::uint64_t;
    RunState state;
    state.step = whole_number<Steps>(json.at("step"));
    if (json.contains("sampler")) state.sampler = json.at("sampler").dump();
    if (json.contains("reducer")) state.reducer = json.at("reducer").dump();
    if (json.contains("loss_scale")) state.loss_scale = json.at("loss_scale").dump();
    state.options_json = json.at("options").dump();
    state.rnn = json.value("rnn", "");
    if (json.contains("rollbacks")) state.rollbacks = whole_number<int>(json.at("rollbacks"));
    state.target_words = json.value("target_words", 0.0);
    state.seconds = json.value("seconds", 0.0);
    if (json.contains("epochs")) {
      const auto& saved = json.at("epochs");
      state.epochs = {whole_number<Steps>(saved.at("step")), saved.at("done"),
                      whole_number<Steps>(saved.at("steps_each"))};
    }
    if (json.contains("early_stopping")) {
      const auto& early = json.at("early_stopping");
      const auto& best = early.at("best");  // null: no score was a number
      state.early_stopping = {early.at("metric"), best.is_null() ? std::nan("") : best.template get<double>(),
                              whole_number<Steps>(early.at("step")),
                              whole_number<int>(early.at("evaluations"))};
    }
    if (json.contains("best")) {
      for (const auto& [name, best] : json.at("best").items()) {
        state.best[name] = {best.at("score"), whole_number<Steps>(best.at("step"))};
      }
    } else if (const double bleu = json.at("best_bleu"); bleu >= 0) {  // of an older version
      state.best["best_bleu"] = {bleu, 0};
    }
    return state;
  });
}

SavedRun::SavedRun(ddl::Context& context, ddl::SavedCheckpoint checkpoint)
    : checkpoint_(std::move(checkpoint)) {
  const std::string source = checkpoint_.file(source_file);
  const std::string target = checkpoint_.file(target_file);
  context.on_all_ranks("read the checkpoint", [&] {
    state_ = RunState::from_json(checkpoint_.state());
    vocabularies_.emplace(VocabularyPair{Vocabulary::deserialize(source), Vocabulary::deserialize(target)});
  });
}

void SavedRun::restore(const std::string& group, HostMirror&& tensors) const {
  checkpoint_.restore(group, {.whole = tensors.tensors()});
  tensors.upload();
}

void SavedRun::restore_for_translating(Backend& backend, ParameterSet& parameters) const {
  const bool is_averaged = checkpoint_.has_group(average_group);
  restore(is_averaged ? average_group : model_group, HostMirror(backend, values_of(parameters)));
}

bool SavedRun::restore(Backend& backend, const MovingAverage& average) const {
  if (!checkpoint_.has_group(average_group)) return false;
  restore(average_group, HostMirror(backend, average.values()));
  return true;
}

void SavedRun::restore(Backend& backend, ParameterSet& parameters, const Optimizer& optimizer) const {
  restore(model_group, HostMirror(backend, values_of(parameters)));
  Moments moments(backend, optimizer);
  if (moments.empty()) return;
  checkpoint_.restore("optimizer", moments.group());
  moments.mirror().upload();
}

void SavedRun::restore(ddl::Context& context, GradientSync& gradients) const {
  if (state_.reducer.empty()) return;
  try {
    gradients.restore(state_.reducer);
    const std::vector<ddl::NamedTensor> residuals = gradients.residuals();
    if (checkpoint_.has_group(reducer_group)) {
      checkpoint_.restore(reducer_group, {.per_rank = residuals});
      gradients.take_residuals();
    }
  } catch (const ddl::Error& error) {
    if (error.code() != ddl::ErrorCode::mismatch) throw;
    context.log().notice(
        fmt::format("the state of the gradient reduction is not restored from {}: {}", path(), error.what()));
  }
}

std::optional<SavedRun> newest_run(ddl::Context& context, ddl::Checkpoint& checkpoint) {
  auto newest = checkpoint.newest();
  if (!newest) return {};
  return SavedRun(context, std::move(*newest));
}

std::filesystem::path save_run(ddl::Checkpoint& checkpoint, const RunState& state,
                               const VocabularyPair& vocabularies, Backend& backend,
                               const ParameterSet& parameters, const Optimizer& optimizer,
                               const MovingAverage* average,
                               std::optional<std::vector<ddl::NamedTensor>> residuals) {
  HostMirror model(backend, values_of(parameters));
  Moments moments(backend, optimizer);
  std::optional<HostMirror> averages;
  if (average != nullptr) averages.emplace(backend, average->values()).download();
  model.download();
  moments.mirror().download();
  ddl::CheckpointContents contents = contents_of(state, vocabularies);
  contents.groups[model_group] = {.whole = model.tensors()};
  if (averages) contents.groups[average_group] = {.whole = averages->tensors()};
  if (!moments.empty()) contents.groups["optimizer"] = moments.group();
  if (residuals) contents.groups[reducer_group] = {.per_rank = std::move(*residuals)};
  return checkpoint.save(state.step, contents);
}

std::filesystem::path save_model(ddl::Checkpoint& checkpoint, const RunState& state,
                                 const VocabularyPair& vocabularies, Backend& backend,
                                 const ParameterSet& parameters) {
  HostMirror model(backend, values_of(parameters));
  model.download();
  ddl::CheckpointContents contents = contents_of(state, vocabularies);
  contents.groups[model_group] = {.whole = model.tensors()};
  return checkpoint.save(state.step, contents);
}

void check_resumable(const RunState& saved, const std::string& checkpoint) {
  if (!saved.sampler.empty()) return;
  throw ddl::Error(
      ddl::ErrorCode::unsupported,
      fmt::format("checkpoint {} does not say which batches were left: it was written by an older version of "
                  "ddl_nmt. Use that one to go on training from it, or give another --out_dir to start anew; "
                  "translating (--infer) works.",
                  checkpoint));
}

void check_same_model(const Options& saved, const Options& wanted, const std::string& checkpoint) {
  std::string differences;
  const auto compare = [&](std::string_view name, const std::string& before, const std::string& now) {
    const auto shown = [](const std::string& text) { return text.empty() ? std::string("\"\"") : text; };
    if (before == now) return;
    differences +=
        fmt::format("\n  {}: the checkpoint has {}, this run asks for {}", name, shown(before), shown(now));
  };
  compare("encoder layers", fmt::format("{}", saved.encoder_layers()),
          fmt::format("{}", wanted.encoder_layers()));
  compare("decoder layers", fmt::format("{}", saved.decoder_layers()),
          fmt::format("{}", wanted.decoder_layers()));
  for (const std::string_view name : model_flags) {
    const Flag& flag = *find_flag(name);
    compare(fmt::format("--{}", name), value_text(flag, saved), value_text(flag, wanted));
  }
  if (differences.empty()) return;
  throw ddl::Error(
      ddl::ErrorCode::mismatch,
      fmt::format("checkpoint {} is of another model:{}\nTo translate, leave these flags out; to go on "
                  "training from it, give the checkpoint's values; to start anew, give another --out_dir.",
                  checkpoint, differences));
}

void check_same_vocabularies(const VocabularyPair& saved, const Options& wanted,
                             const std::string& checkpoint) {
  const auto given = vocabularies_from_files(wanted);
  if (!given) return;
  const auto check = [&](const Vocabulary& of_checkpoint, const Vocabulary& of_file,
                         const std::string& suffix) {
    if (of_checkpoint.serialize() == of_file.serialize()) return;
    throw ddl::Error(
        ddl::ErrorCode::mismatch,
        fmt::format("vocabulary {}.{} ({} entries) does not fit checkpoint {}, whose vocabulary has {} "
                    "entries{}. Leave --vocab_prefix out: the checkpoint holds its vocabulary.",
                    wanted.vocab_prefix, suffix, of_file.size(), checkpoint, of_checkpoint.size(),
                    of_file.size() == of_checkpoint.size() ? ", but other ones" : ""));
  };
  check(saved.source, given->source, source_suffix(wanted));
  check(saved.target, given->target, wanted.share_vocab ? source_suffix(wanted) : wanted.tgt);
}

Options options_of_run(const SavedRun& saved, const ParsedOptions& parsed) {
  const Options before = options_from_json(saved.state().options_json);
  Options options = with_explicit_options(before, parsed);
  if (before.mini_batch_fit && options.mini_batch_fit) {
    options.batch_size = before.batch_size;
    options.batch_words = before.batch_words;
  }
  check_same_model(before, options, saved.path());
  if (std::ranges::count(parsed.explicitly_set, "vocab_prefix") > 0) {
    check_same_vocabularies(saved.vocabularies(), options, saved.path());
  }
  return options;
}

}  // namespace nmt
