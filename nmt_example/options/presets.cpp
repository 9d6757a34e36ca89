#include "nmt_example/options/presets.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "nmt_example/options/flag_table.hpp"

namespace nmt {

std::span<const Preset> presets() {
  static const std::vector<Preset> table = {
      {"quickstart",
       "a small translator of the built-in corpus, two minutes on two cores",
       {{"builtin_corpus", "60000"},
        {"vocab_size", "250"},
        {"encoder_type", "bi"},
        {"num_layers", "2"},
        {"num_units", "192"},
        {"attention", "scaled_luong"},
        {"dropout", "0"},
        {"init_op", "glorot_uniform"},
        {"optimizer", "adam"},
        {"adam_beta2", "0.98"},
        {"learning_rate", "0.003"},
        {"warmup_steps", "100"},
        {"warmup_scheme", "linear"},
        {"decay_scheme", "cosine"},
        {"num_train_steps", "1600"},
        {"batch_size", "32"},
        {"steps_per_stats", "100"},
        {"steps_per_eval", "400"},
        {"steps_per_external_eval", "800"},
        {"metrics", "bleu,accuracy"}}},
      {"multi30k",
       "Multi30k English to German: give --train_prefix, --dev_prefix and --test_prefix",
       {{"src", "en"},
        {"tgt", "de"},
        {"vocab_size", "6000"},
        {"share_vocab", "true"},
        {"num_buckets", "25"},
        {"encoder_type", "bi"},
        {"num_layers", "2"},
        {"num_units", "256"},
        {"attention", "scaled_luong"},
        {"dropout", "0.4"},
        {"init_op", "glorot_uniform"},
        {"label_smoothing", "0.1"},
        {"optimizer", "adam"},
        {"adam_beta2", "0.98"},
        {"learning_rate", "0.002"},
        {"warmup_steps", "200"},
        {"warmup_scheme", "linear"},
        {"decay_scheme", "cosine"},
        {"num_train_steps", "9000"},
        {"batch_size", "32"},
        {"steps_per_stats", "100"},
        {"steps_per_eval", "900"},
        {"steps_per_external_eval", "1800"},
        {"beam_width", "5"},
        {"length_penalty_weight", "1"}}},
      {"iwslt15",
       "tensorflow/nmt's English to Vietnamese: give the files and --vocab_prefix",
       {{"num_layers", "2"},
        {"num_units", "512"},
        {"encoder_type", "bi"},
        {"attention", "scaled_luong"},
        {"dropout", "0.2"},
        {"optimizer", "sgd"},
        {"learning_rate", "1"},
        {"decay_scheme", "luong234"},
        {"num_train_steps", "12000"},
        {"batch_size", "128"},
        {"beam_width", "10"}}},
      {"ddl_reference",
       "the article's model: 4 layers of 1,024 units, no attention, 717.67 MB of gradients",
       {{"num_layers", "4"},
        {"num_units", "1024"},
        {"encoder_type", "bi"},
        {"attention", ""},
        {"dropout", "0.2"},
        {"vocab_size", "36548"},
        {"optimizer", "sgd"},
        {"learning_rate", "1"},
        {"decay_scheme", "luong10"},
        {"num_train_steps", "340000"},
        {"batch_size", "128"}}},
      {"benchmark",
       "the model that words per second are quoted for, on the built-in corpus",
       {{"builtin_corpus", "100000"},
        {"vocab_size", "8000"},
        {"encoder_type", "bi"},
        {"num_layers", "2"},
        {"num_units", "256"},
        {"attention", "scaled_luong"},
        {"batch_size", "64"},
        {"num_train_steps", "200"},
        {"steps_per_stats", "20"}}},
  };
  return table;
}

void apply_preset(std::string_view name, Options& options) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  if (found == presets().end()) {
    std::string names;
    for (const Preset& preset : presets()) names += fmt::format(" {}", preset.name);
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("--preset={}: there is no such preset; the presets are:{}", name, names));
  }
  for (const auto& [flag, value] : found->flags) assign(*find_flag(flag), value, options);
  options.preset = name;
}

}  // namespace nmt
