#include "nmt_example/training/saved_run.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ddl/broadcast_parameters.hpp"
#include "ddl/error.hpp"
#include "nmt_example/training/host_mirror.hpp"

namespace nmt {
namespace {

constexpr const char* source_file = "source.vocabulary";
constexpr const char* target_file = "target.vocabulary";

std::vector<NamedView> moments_of(const Optimizer& optimizer) {
  std::vector<NamedView> views;
  for (const Optimizer::State& state : optimizer.state()) views.push_back({state.name, state.value});
  return views;
}

template <typename T>
void compare(std::string& differences, const char* name, const T& saved, const T& wanted) {
  if (saved == wanted) return;
  const auto text = [](const T& value) {
    std::string shown = fmt::format("{}", value);
    return shown.empty() ? std::string("\"\"") : shown;
  };
  differences +=
      fmt::format("\n  {}: the checkpoint has {}, asked for is {}", name, text(saved), text(wanted));
}

}  // namespace

std::string RunState::to_json() const {
  using nlohmann::ordered_json;
  ordered_json json = {{"step", step}};
  if (!sampler.empty()) json["sampler"] = ordered_json::parse(sampler);
  json["best_bleu"] = best_bleu;
  json["options"] = ordered_json::parse(options_json);
  return json.dump(1);
}

RunState RunState::from_json(const std::string& text) {
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    return {.step = json.at("step"),
            .sampler = json.contains("sampler") ? json.at("sampler").dump() : "",
            .best_bleu = json.at("best_bleu"),
            .options_json = json.at("options").dump()};
  } catch (const nlohmann::json::exception& error) {
    throw ddl::Error(ddl::ErrorCode::corrupt_data,
                     fmt::format("the checkpoint's state.json is not one of ddl_nmt: {}", error.what()));
  }
}

SavedRun::SavedRun(ddl::Context& context, const std::filesystem::path& checkpoint)
    : path_(checkpoint.string()) {
  std::string state, source, target;
  context.root_only("open the checkpoint", [&] {
    reader_.emplace(checkpoint);
    state = reader_->state();
    source = reader_->file(source_file);
    target = reader_->file(target_file);
  });
  state = context.broadcast_string(state);
  source = context.broadcast_string(source);
  target = context.broadcast_string(target);
  context.on_all_ranks("read the checkpoint", [&] {
    state_ = RunState::from_json(state);
    vocabularies_.emplace(VocabularyPair{Vocabulary::deserialize(source), Vocabulary::deserialize(target)});
  });
}

void SavedRun::restore(ddl::Context& context, Backend& backend, ParameterSet& parameters,
                       const Optimizer* optimizer) const {
  HostMirror model(backend, values_of(parameters));
  HostMirror moments(backend, optimizer != nullptr ? moments_of(*optimizer) : std::vector<NamedView>());
  const bool has_moments = !moments.tensors().empty();
  context.root_only("read the checkpoint", [&] {
    reader_->read("model", model.tensors());
    if (has_moments) reader_->read("optimizer", moments.tensors());
  });
  ddl::broadcast_parameters(context, model.parameters());
  model.upload();
  if (!has_moments) return;
  ddl::broadcast_parameters(context, moments.parameters());
  moments.upload();
}

std::string newest_checkpoint(ddl::Context& context, const std::filesystem::path& directory) {
  std::string path;
  context.root_only("look for checkpoints", [&] {
    if (!std::filesystem::exists(directory)) return;
    const ddl::CheckpointDirectory checkpoints(directory);
    if (const auto step = checkpoints.newest()) path = checkpoints.path_of(*step).string();
  });
  return context.broadcast_string(path);
}

std::filesystem::path save_run(ddl::CheckpointDirectory& directory, const RunState& state,
                               const VocabularyPair& vocabularies, Backend& backend,
                               const ParameterSet& parameters, const Optimizer& optimizer) {
  HostMirror model(backend, values_of(parameters));
  HostMirror moments(backend, moments_of(optimizer));
  model.download();
  moments.download();
  ddl::CheckpointDirectory::Contents contents;
  contents.groups["model"] = model.tensors();
  if (auto tensors = moments.tensors(); !tensors.empty()) contents.groups["optimizer"] = std::move(tensors);
  contents.state = state.to_json();
  contents.files[source_file] = vocabularies.source.serialize();
  contents.files[target_file] = vocabularies.target.serialize();
  return directory.save(state.step, contents);
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
  compare(differences, "--num_units", saved.num_units, wanted.num_units);
  compare(differences, "encoder layers", saved.encoder_layers(), wanted.encoder_layers());
  compare(differences, "decoder layers", saved.decoder_layers(), wanted.decoder_layers());
  compare(differences, "--encoder_type", saved.encoder_type, wanted.encoder_type);
  compare(differences, "--attention", saved.attention, wanted.attention);
  compare(differences, "--output_attention", saved.output_attention, wanted.output_attention);
  compare(differences, "--pass_hidden_state", saved.pass_hidden_state, wanted.pass_hidden_state);
  compare(differences, "--forget_bias", saved.forget_bias, wanted.forget_bias);
  compare(differences, "--share_vocab", saved.share_vocab, wanted.share_vocab);
  compare(differences, "--optimizer", saved.optimizer, wanted.optimizer);
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
  check(saved.source, given->source, wanted.src);
  check(saved.target, given->target, wanted.share_vocab ? wanted.src : wanted.tgt);
}

}  // namespace nmt
