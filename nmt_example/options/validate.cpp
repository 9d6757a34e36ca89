#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "ddl/error.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw ddl::Error(ddl::ErrorCode::invalid_argument, message);
}

void check_range(const Flag& flag, const Options& options) {
  std::visit(
      [&](auto member) {
        if constexpr (is_plain<decltype(member)>) {
          const auto value = options.*member;
          require(flag.is_switch() || flag.range.contains(static_cast<double>(value)),
                  fmt::format("--{}={}: must be {}", flag.name, value, flag.allowed()));
        } else if constexpr (std::is_same_v<decltype(member), Length Options::*>) {
          const Length& value = options.*member;
          require(flag.range.contains(value.amount()),
                  fmt::format("--{}={}: must be {}", flag.name, value.text(), flag.allowed()));
        }
      },
      flag.member);
}

void check_model(const Options& options) {
  const bool on_cpu = options.device == DeviceKind::cpu;
  require(options.dtype != Dtype::tf32 || !on_cpu,
          "--dtype=tf32: CPUs have no such products; use --device=cuda or --dtype=f32");
  require(options.mixed_type != MixedType::f16 || !on_cpu,
          "--mixed_type=f16: CPUs compute with bf16; use --device=cuda or --mixed_type=bf16");
  const bool scales =
      options.loss_scaling != LossScaling::off && options.loss_scaling != LossScaling::automatic;
  require(!scales || options.dtype == Dtype::mixed,
          fmt::format("--loss_scaling={}: needs --dtype=mixed; gradients of f32 do not vanish",
                      name_of(options.loss_scaling)));
  require(options.rnn == LstmMethod::automatic || options.rnn == LstmMethod::loop ||
              options.device == DeviceKind::cuda,
          fmt::format("--rnn={}: needs --device=cuda", name_of(options.rnn)));
  require(!options.step_graph || options.device == DeviceKind::cuda, "--step_graph: needs --device=cuda");
  require(!options.step_graph || !options.sparse_embeddings,
          "--step_graph: ranks cannot agree within a graph on the rows of embeddings that they send; add "
          "--sparse_embeddings=false");
  require(!options.step_graph || options.micro_batch_size == 0,
          fmt::format("--step_graph and --micro_batch_size={}: a graph is of a whole batch; leave one out",
                      options.micro_batch_size));
  require(
      !options.step_graph || options.num_sampled_softmax == 0,
      fmt::format("--step_graph and --num_sampled_softmax={}: the host draws the words of each step; leave "
                  "one out",
                  options.num_sampled_softmax));
  require(
      !options.step_graph || options.rnn != LstmMethod::cudnn,
      "--step_graph and --rnn=cudnn: cuDNN's layers are given the lengths of sentences by the host; leave "
      "one out");
  require(!options.profile || options.device == DeviceKind::cpu,
          "--profile: measures operations on CPUs only; leave it or --device=cuda out");
  const bool attends = options.attention != AttentionKind::none;
  const bool standard = options.attention_architecture == AttentionArchitecture::standard;
  require(options.encoder_type != EncoderType::bi || options.encoder_layers() % 2 == 0,
          fmt::format("--{}={}: must be even with --encoder_type=bi, which gives half to each direction",
                      options.num_encoder_layers > 0 ? "num_encoder_layers" : "num_layers",
                      options.encoder_layers()));
  require(
      options.encoder_type != EncoderType::gnmt || options.encoder_layers() >= 2,
      fmt::format("--{}={}: must be at least 2 with --encoder_type=gnmt, whose lowest layer reads both ways",
                  options.num_encoder_layers > 0 ? "num_encoder_layers" : "num_layers",
                  options.encoder_layers()));
  require(
      !options.language_model || !attends,
      fmt::format(
          "--language_model and --attention={}: a language model has no source to attend to; leave one out",
          name_of(options.attention)));
  require(standard || attends, fmt::format("--attention_architecture={}: needs --attention",
                                           name_of(options.attention_architecture)));
  const auto size = [&](int given) { return given > 0 ? given : options.num_units; };
  require(
      !options.share_vocab || size(options.src_embed_size) == size(options.tgt_embed_size),
      fmt::format(
          "--src_embed_size={} and --tgt_embed_size={}: must be equal with --share_vocab, where one table "
          "embeds both languages",
          options.src_embed_size, options.tgt_embed_size));
  const int inputs = options.output_units();
  require(!options.tie_output || size(options.tgt_embed_size) == inputs,
          fmt::format("--tgt_embed_size={}: must be {}={} with --tie_output, as what the output layer reads",
                      options.tgt_embed_size,
                      inputs == options.num_units ? "--num_units" : "--attention_units", inputs));
  require(!options.tie_output || options.embed_prefix.empty(),
          "--tie_output and --embed_prefix: given vectors are not trained, but the output layer is; leave "
          "one out");
  require(
      options.feed_context || (!standard && options.decoder_layers() > 1),
      "--feed_context=false: needs --attention_architecture=gnmt or gnmt_v2 and two decoder layers, of which "
      "the "
      "upper one then reads what the lower one attends to");
  const bool equal_layers = options.encoder_layers() == options.decoder_layers();
  if (options.language_model) return;
  require(attends || equal_layers,
          fmt::format("{} encoder and {} decoder layers: without --attention they must be equal, because the "
                      "decoder starts from the encoder's state",
                      options.encoder_layers(), options.decoder_layers()));
  require(attends || options.pass_hidden_state,
          "--pass_hidden_state=false: needs --attention, otherwise the decoder sees nothing of the source");
  require(equal_layers || !options.pass_hidden_state,
          fmt::format("--pass_hidden_state=true: needs as many decoder as encoder layers, found {} and {}",
                      options.decoder_layers(), options.encoder_layers()));
}

void check_loss(const Options& options) {
  require(options.num_sampled_softmax == 0 || options.label_smoothing == 0,
          fmt::format(
              "--num_sampled_softmax={} and --label_smoothing={}: smoothing takes from the target for all "
              "words, of which a sampled softmax sees a few; leave one out",
              options.num_sampled_softmax, options.label_smoothing));
}

void check_optimizer(const Options& options) {
  const OptimizerKind kind = options.optimizer;
  require(kind != OptimizerKind::adam || options.weight_decay == 0,
          fmt::format("--weight_decay={}: not with --optimizer=adam, whose moments would distort it; use "
                      "--optimizer=adamw",
                      options.weight_decay));
  require(options.larc_eta == 0 || kind == OptimizerKind::sgd || kind == OptimizerKind::momentum,
          fmt::format("--larc_eta={}: needs --optimizer=sgd or momentum; the steps of {} do not depend on "
                      "the gradient's norm, or have a rule of their own",
                      options.larc_eta, name_of(kind)));
}

void check_decay(const Options& options) {
  require(options.decay_scheme != DecayScheme::exp || options.decay_factor != 1,
          "--decay_scheme=exp: needs --decay_factor=F other than 1, for instance 0.5");
  require(options.decay_scheme != DecayScheme::noam || options.warmup_steps.amount() > 0,
          "--decay_scheme=noam: needs --warmup_steps=N above 0, for instance 4000");
  const bool ends = options.decay_scheme == DecayScheme::cosine || options.decay_scheme == DecayScheme::poly;
  require(!ends || options.end_learning_rate <= options.learning_rate,
          fmt::format("--end_learning_rate={}: must be at most --learning_rate={}", options.end_learning_rate,
                      options.learning_rate));
  if (options.decay_scheme != DecayScheme::piecewise) return;
  const auto& boundaries = options.decay_boundaries;
  require(
      !boundaries.empty() && boundaries.size() == options.decay_rates.size(),
      fmt::format("--decay_scheme=piecewise: needs --decay_boundaries and --decay_rates with one rate for "
                  "each boundary; found {} and {}",
                  boundaries.size(), options.decay_rates.size()));
  if (std::ranges::all_of(boundaries, &Length::is_known)) {
    const auto not_ascending = [](std::int64_t a, std::int64_t b) { return a >= b; };
    require(
        boundaries.front() > 0 && std::ranges::adjacent_find(boundaries, not_ascending) == boundaries.end(),
        fmt::format("--decay_boundaries={}: must be above 0 and ascending",
                    printable(value_text(*find_flag("decay_boundaries"), options))));
  }
  require(std::ranges::min(options.decay_rates) >= 0,
          fmt::format("--decay_rates={}: must be at least 0",
                      printable(value_text(*find_flag("decay_rates"), options))));
}

void check_batches(const Options& options) {
  require(
      !options.mini_batch_fit || options.micro_batch_size == 0,
      fmt::format("--mini_batch_fit and --micro_batch_size={}: the memory of micro-batches does not depend "
                  "on the batch; leave one out",
                  options.micro_batch_size));
}

void check_phases(const Options& options) {
  require(options.phase1_steps == 0 || options.phase1_max_len > 0,
          fmt::format("--phase1_steps={}: needs --phase1_max_len=N above 0, the longest side of its pairs",
                      options.phase1_steps.text()));
}

void check_schedule(const Options& options) {
  const Length& end = options.num_train_steps;
  const bool ends_at_a_step = end.unit() == LengthUnit::steps || end.unit() == LengthUnit::epochs;
  const bool needs_end =
      options.decay_scheme == DecayScheme::cosine || options.decay_scheme == DecayScheme::poly ||
      options.decay_scheme == DecayScheme::luong5 || options.decay_scheme == DecayScheme::luong10 ||
      options.decay_scheme == DecayScheme::luong234;
  require(
      ends_at_a_step || !needs_end,
      fmt::format("--num_train_steps={} and --decay_scheme={}: this decay depends on the number of steps; "
                  "give steps or epochs (--max_train_seconds may end them earlier), or another decay",
                  end.text(), name_of(options.decay_scheme)));
  // Checked again when epochs are known.
  if (!end.is_known() || !options.warmup_steps.is_known()) return;
  // `single_worker_schedule` checks this case, because that needs the number of ranks.
  if (options.lr_schedule_unit == ddl::ScheduleUnit::samples) return;
  const bool ends = options.decay_scheme == DecayScheme::cosine || options.decay_scheme == DecayScheme::poly;
  require(!ends || end == 0 || options.warmup_steps < end,
          fmt::format("--warmup_steps={}: must be below --num_train_steps={} with --decay_scheme={}",
                      options.warmup_steps.text(), end.text(), name_of(options.decay_scheme)));
}

void check_vocabulary(const Options& options) {
  require(options.subword_option != SubwordOption::bpe || !options.vocab_prefix.empty(),
          "--subword_option=bpe: needs --vocab_prefix, the vocabulary of the pieces that the text is split "
          "into; without it SentencePiece pieces are trained");
  const Options defaults;
  const bool special_words = options.sos != defaults.sos || options.eos != defaults.eos ||
                             options.check_special_token != defaults.check_special_token;
  require(!special_words || !options.vocab_prefix.empty(),
          "--sos, --eos and --check_special_token are about word lists: give one with --vocab_prefix");
  for (const std::string* word : {&options.sos, &options.eos}) {
    require(!word->empty() && word->find_first_of(" \t\r\n") == std::string::npos,
            fmt::format("--{}={}: must be one word", word == &options.sos ? "sos" : "eos",
                        word->empty() ? "\"\"" : printable(*word)));
  }
  require(options.sos != options.eos,
          fmt::format("--sos={} and --eos={}: must differ", printable(options.sos), printable(options.eos)));
  require(!options.use_char_encode || !options.share_vocab,
          "--use_char_encode and --share_vocab: the source is read as bytes and the target as words, which "
          "cannot share an embedding; leave one out");
}

void check_training_data(const Options& options) {
  if (options.builtin_corpus > 0) {
    require(options.train_prefix.empty(),
            fmt::format("--builtin_corpus={} and --train_prefix={}: choose one", options.builtin_corpus,
                        printable(options.train_prefix)));
    require(options.vocab_prefix.empty(),
            fmt::format("--vocab_prefix={}: the built-in corpus trains its own vocabulary",
                        printable(options.vocab_prefix)));
    return;
  }
  require(!options.train_prefix.empty(),
          "nothing to train on: give --train_prefix, --src and --tgt, or --builtin_corpus=N, or "
          "--preset=quickstart; --infer translates and --describe needs no data");
  for (const std::string_view name : {"src", "tgt"}) {
    if (name == "src" && options.language_model) continue;
    require(
        !value_text(*find_flag(name), options).empty(),
        fmt::format("--{} is missing: --train_prefix={} needs it", name, printable(options.train_prefix)));
  }
}

void check_inference(const Options& options) {
  require(options.infer_mode != InferMode::beam_search || options.beam_width > 0,
          "--infer_mode=beam_search: needs --beam_width=N of at least 1");
  require(options.infer_mode != InferMode::sample || options.sampling_temperature > 0,
          "--infer_mode=sample: needs --sampling_temperature=T above 0, for instance 1");
  require(options.beam_width == 0 || options.sampling_temperature == 0,
          fmt::format("--beam_width={} and --sampling_temperature={}: choose one", options.beam_width,
                      options.sampling_temperature));
  require(options.beam_width == 0 || options.infer_mode == InferMode::beam_search,
          fmt::format("--beam_width={} and --infer_mode={}: a beam is for beam_search; leave one out",
                      options.beam_width, name_of(options.infer_mode)));
  require(
      options.sampling_temperature == 0 || options.infer_mode == InferMode::sample,
      fmt::format("--sampling_temperature={} and --infer_mode={}: a temperature is for sample; leave one out",
                  options.sampling_temperature, name_of(options.infer_mode)));
  const int translations = options.num_translations_per_input;
  require(translations == 1 || options.infer_mode != InferMode::greedy,
          fmt::format("--num_translations_per_input={}: greedy search gives one; add --beam_width=N or "
                      "--sampling_temperature=T",
                      translations));
  require(options.infer_mode != InferMode::beam_search || translations <= options.beam_width,
          fmt::format("--num_translations_per_input={}: a beam of --beam_width={} gives no more than that",
                      translations, options.beam_width));
  require(!options.infer || !options.ckpt.empty() || !options.out_dir.empty() || !options.model.empty(),
          "--infer: give --out_dir (its newest checkpoint is used) or --ckpt");
}

void check_early_stopping(const Options& options) {
  const std::string& by = options.early_stopping;
  if (by.empty() || options.infer) return;
  const bool is_metric = !options.language_model &&
                         std::ranges::find(options.metrics, by, &Metric::name) != options.metrics.end();
  require(by == "dev_ppl" || is_metric,
          fmt::format("--early_stopping={}: must be dev_ppl{}", printable(by),
                      options.language_model
                          ? " with --language_model, whose translations are not scored"
                          : fmt::format(" or one of --metrics={}", names_of(options.metrics))));
  require(
      options.describe || options.dump_config || !options.dev_prefix.empty() || options.builtin_corpus > 0,
      fmt::format("--early_stopping={}: needs --dev_prefix, the text that is scored", printable(by)));
}

void check_saving(const Options& options) {
  require(!options.avg_ckpts || !options.out_dir.empty() || options.infer,
          "--avg_ckpts: needs --out_dir, whose checkpoints it averages");
  require(!options.avg_ckpts || options.ema_decay == 0,
          fmt::format("--avg_ckpts and --ema_decay={}: both average the model's parameters; choose one",
                      options.ema_decay));
  require(!options.avg_ckpts || options.num_keep_ckpts > 0,
          "--avg_ckpts: needs --num_keep_ckpts=N above 0, the number of checkpoints to average");
  require(options.on_divergence != OnDivergence::rollback || !options.out_dir.empty() || options.infer,
          "--on_divergence=rollback: needs --out_dir, whose checkpoints it goes back to");
}

}  // namespace

void validate_values(const Options& options) {
  for (const Flag& flag : all_flags()) check_range(flag, options);
}

void validate(const Options& options) {
  validate_values(options);
  check_model(options);
  check_loss(options);
  check_optimizer(options);
  check_decay(options);
  check_schedule(options);
  check_batches(options);
  check_phases(options);
  check_vocabulary(options);
  check_inference(options);
  check_early_stopping(options);
  check_saving(options);
  if (!options.infer && !options.describe && !options.dump_config) check_training_data(options);
}

}  // namespace nmt
