#include <fmt/core.h>

#include <algorithm>

#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {
namespace {

/// When flags have no effect, and why.
struct Rule {
  std::vector<std::string_view> flags;
  bool (*applies)(const Options& options);
  std::string_view why;
};

/// Whether loss_scaling=auto may be backoff.
bool may_be_f16(const Options& o) {
  return o.dtype == Dtype::mixed && o.device == DeviceKind::cuda && o.mixed_type != MixedType::bf16;
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
      {{"adam_beta1", "adam_beta2", "adam_epsilon"},
       [](const Options& o) {
         return o.optimizer == OptimizerKind::sgd || o.optimizer == OptimizerKind::momentum;
       },
       "the optimiser is sgd or momentum"},
      {{"momentum", "nesterov"},
       [](const Options& o) { return o.optimizer != OptimizerKind::momentum; },
       "the optimiser is not momentum"},
      {{"start_decay_step"},
       [](const Options& o) {
         return o.decay_scheme != DecayScheme::exp && o.decay_scheme != DecayScheme::poly;
       },
       "decay_scheme is neither exp nor poly"},
      {{"decay_steps", "decay_factor"},
       [](const Options& o) { return o.decay_scheme != DecayScheme::exp; },
       "decay_scheme is not exp"},
      {{"decay_power"},
       [](const Options& o) { return o.decay_scheme != DecayScheme::poly; },
       "decay_scheme is not poly"},
      {{"end_learning_rate"},
       [](const Options& o) {
         return o.decay_scheme != DecayScheme::cosine && o.decay_scheme != DecayScheme::poly;
       },
       "decay_scheme is neither cosine nor poly"},
      {{"decay_boundaries", "decay_rates"},
       [](const Options& o) { return o.decay_scheme != DecayScheme::piecewise; },
       "decay_scheme is not piecewise"},
      {{"warmup_scheme"},
       [](const Options& o) { return o.decay_scheme == DecayScheme::noam; },
       "noam has a warm-up of its own"},
      {{"batch_size"}, [](const Options& o) { return o.batch_words > 0; }, "batch_words is given"},
      {{"batch_size"},
       [](const Options& o) { return o.mini_batch_fit && o.batch_words == 0; },
       "mini_batch_fit finds it"},
      {{"phase1_max_len", "phase1_batch_size"},
       [](const Options& o) { return o.phase1_steps == 0; },
       "phase1_steps is 0"},
      {{"mixed_type"}, [](const Options& o) { return o.dtype != Dtype::mixed; }, "dtype is not mixed"},
      {{"loss_scale"},
       [](const Options& o) {
         return o.loss_scaling == LossScaling::off ||
                (o.loss_scaling == LossScaling::automatic && !may_be_f16(o));
       },
       "loss_scaling is off"},
      {{"loss_scale_window"},
       [](const Options& o) {
         return o.loss_scaling != LossScaling::backoff &&
                !(o.loss_scaling == LossScaling::automatic && may_be_f16(o));
       },
       "loss_scaling is not backoff"},
      {{"patience"}, [](const Options& o) { return o.early_stopping.empty(); }, "there is no early_stopping"},
      {{"init_weight"},
       [](const Options& o) { return o.init_op != InitOp::uniform; },
       "init_op is not uniform"},
      {{"warmup_scheme"}, [](const Options& o) { return o.warmup_steps.amount() == 0; }, "warmup_steps is 0"},
      {{"num_layers"},
       [](const Options& o) { return o.num_encoder_layers > 0 && o.num_decoder_layers > 0; },
       "num_encoder_layers and num_decoder_layers are given"},
      {{"encoder_type", "num_encoder_layers", "pass_hidden_state", "share_vocab", "metrics"},
       [](const Options& o) { return o.language_model; },
       "a language model has no encoder, and is scored by its perplexity"},
      {{"output_attention", "attention_units"},
       [](const Options& o) { return o.attention == AttentionKind::none; },
       "there is no attention"},
      {{"attention_units"},
       [](const Options& o) {
         return o.attention != AttentionKind::none &&
                o.attention_architecture != AttentionArchitecture::standard;
       },
       "attention_architecture is not standard"},
      {{"vocab_size"},
       [](const Options& o) { return !o.vocab_prefix.empty() && !o.describe; },
       "vocab_prefix gives the vocabularies"},
      {{"steps_per_external_eval", "avg_ckpts"},
       [](const Options& o) { return o.dev_prefix.empty() && o.builtin_corpus == 0 && !o.infer; },
       "there is no dev_prefix"},
      {{"sharded_checkpoints", "background_checkpoints", "num_keep_ckpts"},
       [](const Options& o) { return o.out_dir.empty() && !o.infer; },
       "there is no out_dir"},
      {{"length_penalty_weight", "coverage_penalty_weight"},
       [](const Options& o) { return o.infer_mode != InferMode::beam_search; },
       "infer_mode is not beam_search"},
      {{"coverage_penalty_weight"},
       [](const Options& o) {
         return o.attention == AttentionKind::none && o.infer_mode == InferMode::beam_search;
       },
       "there is no attention"},
      {{"inference_list", "inference_ref_file", "inference_output_file", "ckpt", "scores", "alignments"},
       [](const Options& o) { return !o.infer; },
       "this run trains; --infer translates"},
  };
  return table;
}

}  // namespace

std::string flags_without_effect(const Options& options, const ParsedOptions& parsed) {
  const Options defaults;
  std::string text;
  for (const Rule& rule : rules()) {
    if (!rule.applies(options)) continue;
    for (const std::string_view name : rule.flags) {
      const Flag& flag = *find_flag(name);
      const std::string value = value_text(flag, parsed.options);
      if (std::ranges::count(parsed.explicitly_set, name) == 0 || value == value_text(flag, defaults))
        continue;
      text += fmt::format("{}--{}={} ({})", text.empty() ? "flags without effect: " : ", ", name, value,
                          rule.why);
    }
  }
  return text;
}

}  // namespace nmt
