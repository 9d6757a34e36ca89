#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nmt {

/// The settings of a run. Names and meanings are those of tensorflow/nmt's flags where it has them; the value
/// of each member is its default.
struct Options {
  // Model.
  int num_units = 32;                ///< Cells per layer, and the embedding's size.
  int num_layers = 2;                ///< Of encoder and decoder.
  int num_encoder_layers = 0;        ///< 0: num_layers.
  int num_decoder_layers = 0;        ///< 0: num_layers.
  std::string encoder_type = "uni";  ///< uni | bi (two independent stacks of num_layers/2).
  std::string attention;             ///< "" | luong | scaled_luong
  bool output_attention = true;
  bool pass_hidden_state = true;
  double forget_bias = 1.0;
  double dropout = 0.2;
  std::string init_op = "uniform";  ///< uniform | glorot_normal | glorot_uniform
  double init_weight = 0.1;         ///< For uniform: weights start between minus this and this.
  // Training.
  std::string optimizer = "sgd";  ///< sgd | adam
  double learning_rate = 1.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  std::int64_t num_train_steps = 12000;
  std::int64_t warmup_steps = 0;
  std::string warmup_scheme = "t2t";  ///< t2t | linear
  std::string decay_scheme;           ///< "" | luong5 | luong10 | luong234 (tensorflow/nmt), or "cosine"
  double max_gradient_norm = 5.0;
  double label_smoothing = 0.0;
  /// What the summed loss is divided by: the global batch's sentences (tensorflow/nmt) or target words.
  /// Matters for SGD's step and for max_gradient_norm.
  std::string loss_per = "sentence";
  int batch_size = 128;             ///< Sentences per rank; the global batch is this times the ranks.
  int micro_batch_size = 0;         ///< Sentences of a rank at a time, adding up the gradients; 0: all.
  std::string lr_scaling = "none";  ///< none | linear | square_root, with the number of ranks
  /// updates | samples: whether warm-up and decay count the job's updates, or those that one worker would
  /// need for as many sentences.
  std::string lr_schedule_unit = "updates";
  std::uint64_t random_seed = 1;
  // Data.
  std::string src;           ///< Suffix of source files, e.g. en.
  std::string tgt;           ///< Suffix of target files, e.g. de.
  std::string train_prefix;  ///< PREFIX.src and PREFIX.tgt, plain or with .gz added.
  std::string dev_prefix;
  std::string test_prefix;
  std::int64_t builtin_corpus = 0;  ///< Sentences to generate for training instead of reading files.
  std::string vocab_prefix;         ///< Word lists PREFIX.src/.tgt, or with subword_option=spm models.
  std::string subword_option;       ///< "" (words of vocab_prefix) | bpe | spm
  int vocab_size = 8000;     ///< Pieces to train where no vocab_prefix is given; or the size for --describe.
  bool share_vocab = false;  ///< One vocabulary and one embedding table for both languages.
  int src_max_len = 50;
  int tgt_max_len = 50;
  int num_buckets = 5;
  // Running.
  std::string out_dir;
  std::int64_t steps_per_stats = 100;
  std::int64_t steps_per_eval = 0;           ///< Dev perplexity and checkpoint; 0: 10 x steps_per_stats.
  std::int64_t steps_per_external_eval = 0;  ///< Dev BLEU; 0: 5 x steps_per_eval.
  int num_keep_ckpts = 5;
  bool sharded_checkpoints = false;    ///< Every rank writes its share; out_dir must be seen by all hosts.
  bool background_checkpoints = true;  ///< Training goes on while a copy is written.
  std::string log_jsonl;
  std::string preset;
  std::string hparams_path;
  bool describe = false;
  int threads = 0;  ///< Per rank; 0: processors of the host / ranks on it, at least 1.
  std::string device = "cpu";
  bool sparse_embeddings = true;          ///< Sends only rows of looked-up words, where that is less.
  std::string gradient_wire = "f32";      ///< f32 | bf16 | f16, between hosts
  bool sharded_update = false;            ///< Each rank updates its part of the parameters.
  std::int64_t drift_check_steps = 1000;  ///< Steps between comparisons of the ranks' parameters; 0: never.
  double max_train_seconds = 0;  ///< 0: no limit; else training ends after the step in which the time is up.
  // Inference.
  bool infer = false;
  std::string inference_input_file;   ///< Empty: standard input.
  std::string inference_output_file;  ///< Empty: standard output.
  std::string ckpt;                   ///< A checkpoint; empty: the newest of out_dir.
  std::string infer_mode = "greedy";  ///< greedy | beam_search
  int beam_width = 0;                 ///< Above 0 switches beam search on.
  double length_penalty_weight = 0.0;
  double coverage_penalty_weight = 0.0;
  int infer_batch_size = 32;
  int src_max_len_infer = 0;  ///< 0: no limit.
  int tgt_max_len_infer = 0;  ///< 0: twice the source's length plus 10.

  [[nodiscard]] int encoder_layers() const { return num_encoder_layers ? num_encoder_layers : num_layers; }
  [[nodiscard]] int decoder_layers() const { return num_decoder_layers ? num_decoder_layers : num_layers; }
};

/// The parsed command line.
struct ParsedOptions {
  Options options;
  std::vector<std::string> explicitly_set;  ///< Flags given on the command line or in the hparams file.
  bool help = false;
  bool version = false;
};

/// Defaults, overridden by the preset, then by the hparams file, then by the flags; the last of a repeated
/// flag counts. Accepts `--name=value`, `--name value` and, for switches, `--name`. A flag of tensorflow/nmt
/// without a member here is accepted with the value that matches the behaviour here. The result is validated
/// (see `validate`), unless --help or --version is given. Some settings imply others, unless a flag says
/// otherwise:
/// - `--inference_input_file` means `--infer`; `--beam_width` above 0 means `--infer_mode=beam_search`, and
///   `--infer_mode=greedy` means `--beam_width=0`;
/// - `--train_prefix` or `--vocab_prefix` takes the place of a preset's built-in corpus;
/// - unequal numbers of encoder and decoder layers mean `--pass_hidden_state=false`.
/// Throws `ddl::Error`: `invalid_argument` for an unknown flag (naming the nearest), an unknown preset, a
/// value of the wrong form, or a combination that cannot work; `unsupported` for something of
/// tensorflow/nmt that is not available; `io` or `corrupt_data` for the hparams file.
ParsedOptions parse_options(int argc, const char* const* argv);

/// `base` with the members that are explicitly set in `parsed`, and with what these imply: a checkpoint's
/// options, changed by the flags of this run. Not validated.
Options with_explicit_options(Options base, const ParsedOptions& parsed);

/// The text of --help: flags by group, each with its default and the values that it allows.
std::string help_text();

/// A table for --describe: by group, each flag with its value, and a star if it differs from the default.
std::string describe_options(const Options& options);

/// The options as a JSON object, for checkpoints and as an hparams file, in the order of --help; and back:
/// names that are missing keep their default, unknown names and values of another type are
/// `invalid_argument`, text that is not a JSON object is `corrupt_data`.
std::string to_json(const Options& options);
Options options_from_json(const std::string& json);

/// Checks ranges and combinations; throws `invalid_argument` naming flag, value and what is allowed.
void validate(const Options& options);

}  // namespace nmt
