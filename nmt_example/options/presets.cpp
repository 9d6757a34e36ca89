#include "nmt_example/options/presets.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {

namespace {

using Flags = std::vector<std::pair<std::string_view, std::string_view>>;

/// Flags for Multi30k; `others` override them.
Flags multi30k(const Flags& others) {
  Flags flags = {{"src", "en"},
                 {"tgt", "de"},
                 {"vocab_size", "6000"},
                 {"share_vocab", "true"},
                 {"num_buckets", "25"},
                 {"encoder_type", "bi"},
                 {"num_layers", "2"},
                 {"num_units", "256"},
                 {"attention", "scaled_luong"},
                 {"tie_output", "true"},
                 {"dropout", "0.3"},
                 {"subword_sampling", "0.5"},
                 {"ema_decay", "0.999"},
                 {"init_op", "glorot_uniform"},
                 {"label_smoothing", "0.1"},
                 {"optimizer", "adam"},
                 {"adam_beta2", "0.98"},
                 {"learning_rate", "0.004"},
                 {"warmup_steps", "200"},
                 {"warmup_scheme", "linear"},
                 {"decay_scheme", "cosine"},
                 {"num_train_steps", "6000"},
                 {"batch_size", "32"},
                 {"steps_per_stats", "100"},
                 {"steps_per_eval", "600"},
                 {"steps_per_external_eval", "1200"},
                 {"beam_width", "5"},
                 {"length_penalty_weight", "0.6"}};
  flags.insert(flags.end(), others.begin(), others.end());
  return flags;
}

}  // namespace

std::span<const Preset> presets() {
  static const std::vector<Preset> table = {
      {"quickstart",
       "a small translator of the built-in corpus, a minute and a half on two cores",
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
        {"learning_rate", "0.008"},
        {"warmup_steps", "100"},
        {"warmup_scheme", "linear"},
        {"decay_scheme", "cosine"},
        {"num_train_steps", "800"},
        {"batch_size", "16"},
        {"steps_per_stats", "100"},
        {"steps_per_eval", "200"},
        {"steps_per_external_eval", "400"},
        {"metrics", "bleu,accuracy"}}},
      {"multi30k",
       "Multi30k English to German, 38.5 BLEU after 6 (--dtype=mixed) to 30 minutes on two cores: give "
       "--train_prefix, --dev_prefix and --test_prefix",
       multi30k({})},
      {"multi30k_large",
       "the same with 512 units, more dropout, and 9,000 steps at half the learning rate: with --dtype=mixed "
       "38.7 BLEU, one seed, after half an hour on two fast cores",
       multi30k({{"num_units", "512"},
                 {"dropout", "0.5"},
                 {"subword_sampling", "0.3"},
                 {"learning_rate", "0.002"},
                 {"num_train_steps", "9000"}})},
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
      {"wmt16",
       "tensorflow/nmt's German to English: give the files and --vocab_prefix",
       {{"num_layers", "4"},
        {"num_units", "1024"},
        {"encoder_type", "bi"},
        {"attention", "normed_bahdanau"},
        {"subword_option", "bpe"},
        {"dropout", "0.2"},
        {"optimizer", "sgd"},
        {"learning_rate", "1"},
        {"decay_scheme", "luong10"},
        {"num_train_steps", "340000"},
        {"batch_size", "128"},
        {"beam_width", "10"}}},
      {"gnmt8",
       "tensorflow/nmt's GNMT of 8 layers, German to English: give the files and --vocab_prefix",
       {{"num_layers", "8"},
        {"num_units", "1024"},
        {"encoder_type", "gnmt"},
        {"residual", "true"},
        {"attention", "normed_bahdanau"},
        {"attention_architecture", "gnmt_v2"},
        {"subword_option", "bpe"},
        {"dropout", "0.2"},
        {"optimizer", "sgd"},
        {"learning_rate", "1"},
        {"decay_scheme", "luong10"},
        {"num_train_steps", "340000"},
        {"batch_size", "128"},
        {"beam_width", "10"},
        {"length_penalty_weight", "1"}}},
      {"nvidia_gnmt",
       "NVIDIA's GNMT v2, German to English: give the files and --vocab_prefix",
       {{"num_layers", "4"},
        {"num_units", "1024"},
        {"encoder_type", "gnmt"},
        {"residual", "true"},
        {"attention", "normed_bahdanau"},
        {"attention_architecture", "gnmt_v2"},
        {"feed_context", "false"},
        {"pass_hidden_state", "false"},
        {"forget_bias", "0"},
        {"share_vocab", "true"},
        {"output_bias", "true"},
        {"subword_option", "bpe"},
        {"vocab_size", "32320"},
        {"dropout", "0.2"},
        {"label_smoothing", "0.1"},
        {"optimizer", "adam"},
        {"learning_rate", "0.002"},
        {"warmup_steps", "200"},
        {"loss_per", "word"},
        {"batch_size", "128"},
        {"beam_width", "5"},
        {"length_penalty_weight", "0.6"},
        {"coverage_penalty_weight", "0.1"}}},
      {"word_lm",
       "a language model of words, 2 layers of 650 cells: give --tgt, the files and --vocab_prefix",
       {{"language_model", "true"},
        {"num_layers", "2"},
        {"num_units", "650"},
        {"dropout", "0.5"},
        {"init_weight", "0.05"},
        {"optimizer", "sgd"},
        {"learning_rate", "1"},
        {"decay_scheme", "luong10"},
        {"loss_per", "word"},
        {"batch_size", "20"}}},
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
    throw ddl::Error(
        ddl::ErrorCode::invalid_argument,
        fmt::format("--preset={}: there is no such preset; the presets are:{}", printable(name), names));
  }
  for (const auto& [flag, value] : found->flags) assign(*find_flag(flag), value, options);
  options.preset = name;
}

}  // namespace nmt
