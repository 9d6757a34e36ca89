#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/options/choices.hpp"
#include "nmt_example/options/length.hpp"

namespace nmt {

/// The settings of a run. Names and meanings are those of tensorflow/nmt's flags where it has them; the value
/// of each member is its default.
struct Options {
  // Model.
  int num_units = 32;          ///< Cells per layer, and the embedding's size.
  int num_layers = 2;          ///< Of encoder and decoder.
  int num_encoder_layers = 0;  ///< 0: num_layers.
  int num_decoder_layers = 0;  ///< 0: num_layers.
  UnitType unit_type = UnitType::lstm;
  EncoderType encoder_type = EncoderType::uni;  ///< bi: two independent stacks of num_layers/2
  bool residual = false;
  bool language_model = false;  ///< A decoder alone, trained on the target text.
  AttentionKind attention = AttentionKind::none;
  AttentionArchitecture attention_architecture = AttentionArchitecture::standard;
  int attention_units = 0;  ///< standard: size of the attention vector; 0: num_units.
  bool output_attention = true;
  bool pass_hidden_state = true;
  bool feed_context = true;  ///< gnmt and gnmt_v2: the lowest layer reads the context of the step before.
  bool tie_output = false;
  bool output_bias = false;
  double forget_bias = 1.0;
  double dropout = 0.2;
  double output_dropout = 0;         ///< Of what the output layer reads.
  bool variational_dropout = false;  ///< The same elements of all words of a sentence.
  InitOp init_op = InitOp::uniform;
  double init_weight = 0.1;  ///< For uniform: weights start between minus this and this.
  // Training.
  OptimizerKind optimizer = OptimizerKind::sgd;
  double learning_rate = 1.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double larc_eta = 0;  ///< Of sgd and momentum as LARC; 0: not as LARC.
  Length num_train_steps = 12000;
  Length warmup_steps = 0;
  WarmupScheme warmup_scheme = WarmupScheme::t2t;
  DecayScheme decay_scheme = DecayScheme::none;
  Length start_decay_step = 0;           ///< exp, poly: the first step that decays.
  Length decay_steps = 10000;            ///< exp: steps between decays.
  double decay_factor = 1.0;             ///< exp: what each decay multiplies by.
  double decay_power = 1.0;              ///< poly
  double end_learning_rate = 0;          ///< poly, cosine
  std::vector<Length> decay_boundaries;  ///< piecewise: the first steps of the next rates.
  std::vector<double> decay_rates;       ///< piecewise: those, as multiples of learning_rate.
  double max_gradient_norm = 5.0;
  OnDivergence on_divergence = OnDivergence::stop;  ///< rollback: to the newest good checkpoint
  double label_smoothing = 0.0;
  double word_dropout = 0;      ///< Probability that the model reads <unk> instead of a word.
  double subword_sampling = 0;  ///< See SubwordSampler; 0: words are always split in the same way.
  double ema_decay = 0;         ///< Of the moving average of the parameters, which is kept if above 0.
  int num_sampled_softmax = 0;  ///< Words drawn for a step's softmax in training; 0: it is over all.
  /// What the summed loss is divided by: the global batch's sentences (tensorflow/nmt) or target words.
  /// Matters for SGD's step and for max_gradient_norm.
  LossPer loss_per = LossPer::sentence;
  int batch_size = 128;         ///< Sentences per rank; the global batch is this times the ranks.
  int batch_words = 0;          ///< Source and target words per rank; 0: batches have batch_size sentences.
  bool mini_batch_fit = false;  ///< Batches as large as the memory has room for; see fit_batch.
  int workspace = 0;            ///< Memory of a rank, in MB, that training may take; 0: what there is.
  int micro_batch_size = 0;     ///< Sentences of a rank at a time, adding up the gradients; 0: all.
  ddl::ScalingRule lr_scaling = ddl::ScalingRule::none;  ///< With the number of ranks.
  /// Whether warm-up and decay count the job's updates, or those that one worker would
  /// need for as many sentences.
  ddl::ScheduleUnit lr_schedule_unit = ddl::ScheduleUnit::updates;
  std::uint64_t random_seed = 1;
  // Data.
  std::string src;           ///< Suffix of source files, e.g. en.
  std::string tgt;           ///< Suffix of target files, e.g. de.
  std::string train_prefix;  ///< PREFIX.src and PREFIX.tgt, plain or with .gz added.
  std::string dev_prefix;
  std::string test_prefix;
  std::int64_t builtin_corpus = 0;  ///< Sentences to generate for training instead of reading files.
  std::string vocab_prefix;         ///< Word lists PREFIX.src/.tgt, or with subword_option=spm models.
  SubwordOption subword_option = SubwordOption::none;  ///< none: words of vocab_prefix
  std::string sos = "<s>";                             ///< The entry of a word list that starts a sentence.
  std::string eos = "</s>";                            ///< The entry of a word list that ends one.
  bool check_special_token = true;  ///< Puts <unk>, sos, eos before a word list that does not start so.
  bool use_char_encode = false;     ///< The source's words are read byte by byte.
  std::int64_t max_train = 0;       ///< Sentence pairs to train on, from the first; 0: all.
  int vocab_size = 8000;     ///< Pieces to train where no vocab_prefix is given; or the size for --describe.
  std::string embed_prefix;  ///< Given vectors of words, PREFIX.src and PREFIX.tgt; empty: none.
  int src_embed_size = 0;    ///< Of an embedded source word; 0: num_units, or that of embed_prefix.
  int tgt_embed_size = 0;
  bool share_vocab = false;   ///< One vocabulary and one embedding table for both languages.
  Length phase1_steps = 0;    ///< Steps of a first phase with short pairs alone; 0: none.
  int phase1_max_len = 0;     ///< The longest side of such a pair.
  int phase1_batch_size = 0;  ///< Sentences per rank in it; 0: batch_size.
  int src_max_len = 50;
  int tgt_max_len = 50;
  int num_buckets = 5;
  // Running.
  std::string out_dir;
  Length steps_per_stats = 100;
  Length steps_per_eval = 0;           ///< Dev perplexity and checkpoint; 0: 10 x steps_per_stats.
  Length steps_per_external_eval = 0;  ///< Dev metrics; 0: 5 x steps_per_eval.
  std::vector<const Metric*> metrics = metrics_of("bleu");
  std::string early_stopping;  ///< The name of a metric, or dev_ppl; empty: no early stopping.
  int patience = 5;            ///< Evaluations without a better score that end training.
  int num_keep_ckpts = 5;
  bool avg_ckpts = false;              ///< The mean of the kept checkpoints is scored and saved, too.
  bool sharded_checkpoints = false;    ///< Every rank writes its share; out_dir must be seen by all hosts.
  bool background_checkpoints = true;  ///< Training goes on while a copy is written.
  std::string log_jsonl;               ///< Empty: out_dir/log.jsonl, if there is an out_dir.
  std::string log_csv;
  std::string log_dir;   ///< Of TensorBoard's event files.
  bool profile = false;  ///< Print the time of every operation at the end.
  std::string preset;
  std::string hparams_path;              ///< Also set by --config.
  bool override_loaded_hparams = false;  ///< See `with_explicit_options`.
  bool describe = false;
  bool dump_config = false;
  Dtype dtype = Dtype::f32;  ///< mixed: layers compute and keep 16 bits, parameters have 32.
  MixedType mixed_type = MixedType::automatic;
  LossScaling loss_scaling = LossScaling::automatic;  ///< See LossScale.
  double loss_scale = 16384;  ///< The scale of static, and the largest of the other rules.
  std::int64_t loss_scale_window = 2000;
  int threads = 0;  ///< Per rank; 0: processors of the host / ranks on it, at least 1.
  DeviceKind device = DeviceKind::cpu;
  LstmMethod rnn = LstmMethod::automatic;  ///< See choose_lstm.
  bool step_graph = false;                 ///< A step on CUDA, with its reductions, is one graph.
  bool sparse_embeddings = true;           ///< Sends only rows of looked-up words, where that is less.
  ddl::DataType gradient_wire = ddl::DataType::f32;  ///< Between hosts.
  bool sharded_update = false;                       ///< Each rank updates its part of the parameters.
  Length drift_check_steps = 1000;  ///< Steps between comparisons of the ranks' parameters; 0: never.
  double max_train_seconds = 0;  ///< 0: no limit; else training ends after the step in which the time is up.
  // Inference.
  bool infer = false;
  std::string inference_input_file;   ///< Empty: standard input.
  std::string inference_output_file;  ///< Empty: standard output.
  std::string inference_list;         ///< Numbers of the lines to translate, from 0; empty: all.
  std::string inference_ref_file;     ///< References, to print the translations' scores; empty: none.
  std::string ckpt;                   ///< A checkpoint, or a directory of some; empty: the newest of out_dir.
  InferMode infer_mode = InferMode::greedy;
  int beam_width = 0;                 ///< Above 0 switches beam search on.
  double sampling_temperature = 0.0;  ///< Above 0 switches sampling on.
  int num_translations_per_input = 1;
  bool scores = false;      ///< Of translations are written, too.
  bool alignments = false;  ///< Of words are written, too.
  double length_penalty_weight = 0.0;
  double coverage_penalty_weight = 0.0;
  int infer_batch_size = 32;
  int src_max_len_infer = 0;  ///< 0: no limit.
  int tgt_max_len_infer = 0;  ///< 0: twice the source's length plus 10.
  // Of single commands.
  std::string model;        ///< A run's directory, or a checkpoint.
  std::string src_file;     ///< Lines of the source language.
  std::string tgt_file;     ///< Their translations, to be scored by a model.
  std::string hyp;          ///< Translations, to be scored by metrics.
  std::string ref;          ///< References.
  std::string out;          ///< What the command writes; report, empty: two pictures in the run's directory.
  std::string tune;         ///< See tuned_flag.
  int candidates = 8;       ///< Values to try.
  Length rung_steps = 200;  ///< Steps after which the first half of them goes; then twice as many.
  int last = 0;             ///< Newest checkpoints of `model` to average; 0: all.

  /// The size of what the output layer reads.
  [[nodiscard]] int output_units() const {
    const bool reads_attention = attention != AttentionKind::none && output_attention &&
                                 attention_architecture == AttentionArchitecture::standard;
    return reads_attention && attention_units > 0 ? attention_units : num_units;
  }
  [[nodiscard]] int encoder_layers() const { return num_encoder_layers ? num_encoder_layers : num_layers; }
  [[nodiscard]] int decoder_layers() const { return num_decoder_layers ? num_decoder_layers : num_layers; }
};

struct CommandSyntax;

/// The parsed command line.
struct ParsedOptions {
  Options options;
  std::vector<std::string> explicitly_set;  ///< Flags given on the command line or in the file of options.
  std::vector<std::string> notices;         ///< What a person should be told about the flags.
  std::vector<std::string> arguments;       ///< What is no flag, of a command that takes such.
  bool help = false;
  bool help_all = false;  ///< --help=all
  bool version = false;
};

/// Defaults, overridden by the preset, then by the file of options, then by the flags; the last of a repeated
/// flag counts. Accepts `--name=value`, `--name value` and, for switches, `--name`. In the file, a list is
/// its values separated by commas, and null leaves a flag as it is. A flag of tensorflow/nmt without a member
/// here is accepted with the value that matches the behaviour here, or with any value if none changes a
/// result. The values' ranges are checked, and what they are together (`validate`) unless a checkpoint may
/// add to them, that is with --out_dir, --ckpt or a command. With a command, `argv` is as for a program of
/// that name, and only the command's flags are taken. Some settings imply others, unless a flag says
/// otherwise:
/// - `--inference_input_file` means `--infer`; `--sampling_temperature` above 0 means `--infer_mode=sample`,
///   `--beam_width` above 0 means `--infer_mode=beam_search`, and `--infer_mode` sets what another mode needs
///   to 0, unless it was given too;
/// - `--train_prefix` or `--vocab_prefix` takes the place of a preset's built-in corpus;
/// - `--optimizer` means the settings that it was published with, where those have still their defaults;
/// - `--decay_factor` other than 1 means `--decay_scheme=exp`;
/// - unequal numbers of encoder and decoder layers mean `--pass_hidden_state=false`.
/// Throws `ddl::Error`: `invalid_argument` for an unknown flag (naming the nearest), an unknown preset, a
/// value of the wrong form, or a combination that cannot work; `unsupported` for something of
/// tensorflow/nmt that is not available; `io` or `corrupt_data` for the file of options.
ParsedOptions parse_options(int argc, const char* const* argv, const CommandSyntax* command = nullptr);

/// The options of a run that goes on from a checkpoint, or translates with it: those that were saved, changed
/// by this run's flags, preset and file of options, and by what these imply. With
/// `--override_loaded_hparams`, this run's options, defaults included; with
/// `--override_loaded_hparams=false`, only this run's flags for translating change what was saved. Where and
/// how to run (directories, files, device, threads) is always this run's. Not validated.
Options with_explicit_options(Options saved, const ParsedOptions& parsed);

/// How the options of a run differ from those that were saved in its checkpoint, and which of its flags are
/// not used; a line for each.
std::vector<std::string> changes_from_saved(const Options& saved, const Options& run,
                                            const ParsedOptions& parsed);

/// Which of this run's flags have no effect with its options, and why; empty: all have one.
std::string flags_without_effect(const Options& options, const ParsedOptions& parsed);

/// The numbers of --inference_list, of a text of `lines` lines; all of them if the list is empty. Throws
/// `invalid_argument` for what is no number of a line.
std::vector<std::size_t> inference_indices(const std::string& list, std::size_t lines);

/// A table for --describe: by group, each flag with its value, and a star if it differs from the default.
std::string describe_options(const Options& options);

/// The options as a JSON object, for checkpoints and as a file of options, in the order of --help; and back:
/// names that are missing keep their default, unknown names and values of another type are
/// `invalid_argument`, text that is not a JSON object is `corrupt_data`.
std::string to_json(const Options& options);
/// For --dump_config: what --config reads to make a run of these options, whatever its other defaults.
std::string config_of(const Options& options);
Options options_from_json(const std::string& json);

/// Checks each flag's range; throws `invalid_argument` naming flag, value and what is allowed.
void validate_values(const Options& options);
/// Checks ranges and combinations; throws in the same way.
void validate(const Options& options);

}  // namespace nmt
