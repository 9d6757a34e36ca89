#include "nmt_example/options/flag_table.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "ddl/error.hpp"
#include "nmt_example/metrics/metric.hpp"
#include "nmt_example/options/command_syntax.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

using enum FlagGroup;
using O = Options;

Range at_least(double least) { return {.least = least, .most = {}}; }
Range above(double least) { return {.least = least, .most = {}, .without_least = true}; }
Range between(double least, double most) { return {.least = least, .most = most}; }
Range fraction_below_one() { return {.least = 0, .most = 1, .without_most = true}; }

/// The accessors of an enumeration member.
template <auto member>
ChoiceMember choice() {
  using Enum = std::remove_cvref_t<decltype(std::declval<O>().*member)>;
  constexpr auto& choices = choices_of<Enum>;
  static constexpr auto names = [] {
    std::array<std::string_view, choices.size()> result;
    std::ranges::transform(choices, result.begin(), &Choice<Enum>::name);
    return result;
  }();
  return {names, [](const O& options) { return name_of(options.*member); },
          [](O& options, std::string_view name) {
            const auto found = std::ranges::find(choices, name, &Choice<Enum>::name);
            if (found == choices.end()) return false;
            options.*member = found->value;
            return true;
          }};
}

/// Shown only in --help=all.
Flag rare(Flag flag) {
  flag.rare = true;
  return flag;
}

Flag with_units(LengthUnits units, Flag flag) {
  flag.units = units;
  return flag;
}

/// Never taken from a checkpoint.
Flag this_run(Flag flag) {
  flag.this_run = true;
  return flag;
}

std::vector<Flag> make_table() {
  return {
      this_run({"preset", general, &O::preset, "Named set of options; flags override it"}),
      this_run(
          {"config", general, &O::hparams_path,
           "YAML or JSON file of options, by their names here; overrides the preset, flags override it"}),
      this_run({"hparams_path", general, &O::hparams_path, "tensorflow/nmt's name of --config"}),
      this_run({"describe", general, &O::describe, "Print the model, its sizes and all options, and end"}),
      this_run(
          {"dump_config", general, &O::dump_config, "Print all options as a file for --config, and end"}),

      {"src", data, &O::src, "Suffix of the source files, e.g. en"},
      {"tgt", data, &O::tgt, "Suffix of the target files, e.g. de"},
      {"train_prefix", data, &O::train_prefix,
       "Training files: PREFIX.src and PREFIX.tgt, or with .gz added"},
      {"dev_prefix", data, &O::dev_prefix,
       "Files for the perplexity and the metrics during training; empty: neither"},
      {"test_prefix", data, &O::test_prefix, "Files for the metrics at the end"},
      {"builtin_corpus", data, &O::builtin_corpus,
       "Number of sentence pairs to generate for training instead of reading files; 0: read files",
       at_least(0)},
      {"vocab_prefix", data, &O::vocab_prefix,
       "Vocabularies PREFIX.src and PREFIX.tgt: lists, or with subword_option=spm also models; empty: "
       "trained on the text"},
      {"subword_option", data, choice<&O::subword_option>(),
       "What vocab_prefix holds: words (empty), pieces ending in @@ (bpe), SentencePiece's (spm). With a "
       "list, the text must be split into its entries, which are joined before scoring; a SentencePiece "
       "model splits by itself"},
      {"vocab_size", data, &O::vocab_size, "Pieces to train where there is no vocab_prefix",
       between(4, 1 << 24)},
      {"share_vocab", data, &O::share_vocab, "One vocabulary and one embedding for both languages"},
      {"embed_prefix", data, &O::embed_prefix,
       "Vectors of words, PREFIX.src and PREFIX.tgt (or one of them), as GloVe's or word2vec's text files: "
       "those "
       "sides' embeddings, of which only the special words' are trained; empty: all are trained"},
      rare({"src_embed_size", data, &O::src_embed_size,
            "Size of an embedded source word; 0: num_units, or that of embed_prefix", between(0, 65536)}),
      rare({"tgt_embed_size", data, &O::tgt_embed_size,
            "Size of an embedded target word; 0: num_units, or that of embed_prefix", between(0, 65536)}),
      {"src_max_len", data, &O::src_max_len, "Longer sources are cut in training", between(1, 1 << 20)},
      {"tgt_max_len", data, &O::tgt_max_len, "Longer targets are cut in training", between(1, 1 << 20)},
      rare({"max_train", data, &O::max_train, "Sentence pairs to train on, from the first; 0: all",
            at_least(0)}),
      rare({"num_buckets", data, &O::num_buckets,
            "Groups of like length that batches are drawn from, each as wide as the larger of src_max_len "
            "and tgt_max_len divided by this (tensorflow/nmt divides src_max_len, counts <s>, and has one "
            "group more; as the order of sentences is another one, so are the batches in any case)",
            between(1, 1024)}),
      rare({"sos", data, &O::sos, "The entry of a word list that starts a sentence"}),
      rare({"eos", data, &O::eos, "The entry of a word list that ends a sentence"}),
      rare({"check_special_token", data, &O::check_special_token,
            "Put <unk>, sos and eos before a word list that does not start with them; false: its first entry "
            "stands for unknown words, and it must have the other two"}),
      rare({"use_char_encode", data, &O::use_char_encode,
            "Read the source's words byte by byte, at most 48 of a word, with marks around each word "
            "(tensorflow/nmt also pads each word to 50, for an encoder that its user has to write)"}),

      {"num_units", model, &O::num_units, "Cells per layer, and the size of embedded words",
       between(1, 65536)},
      {"num_layers", model, &O::num_layers, "Layers of the encoder and of the decoder", between(1, 256)},
      {"num_encoder_layers", model, &O::num_encoder_layers, "Layers of the encoder; 0: num_layers",
       between(0, 256)},
      {"num_decoder_layers", model, &O::num_decoder_layers, "Layers of the decoder; 0: num_layers",
       between(0, 256)},
      {"encoder_type", model, choice<&O::encoder_type>(),
       "bi: two independent stacks of num_layers/2, one for each direction; gnmt: one such layer, and "
       "num_layers-1 "
       "that read it forwards"},
      {"unit_type", model, choice<&O::unit_type>(), "The cells"},
      {"residual", model, &O::residual,
       "Adds a layer's input to its output, in all layers but the lowest (with encoder_type=gnmt, the lowest "
       "two)"},
      {"attention", model, choice<&O::attention>(), "Score of the attention; empty: none"},
      {"attention_architecture", model, choice<&O::attention_architecture>(),
       "standard: the top layer attends. gnmt, gnmt_v2: the lowest one, whose context is a part of the input "
       "of "
       "all layers above, at the next step (gnmt) or the same (gnmt_v2)"},
      rare({"attention_units", model, &O::attention_units,
            "attention_architecture=standard: size of the vector that joins the top layer's output and the "
            "context; "
            "0: num_units",
            between(0, 65536)}),
      rare({"feed_context", model, &O::feed_context,
            "gnmt, gnmt_v2: the context is a part of the lowest layer's next input; not in NVIDIA's GNMT"}),
      {"tie_output", model, &O::tie_output, "The output layer's weights are the target's embeddings"},
      rare(
          {"output_bias", model, &O::output_bias, "The output layer has a bias (tensorflow/nmt's has none)"}),
      {"dropout", model, &O::dropout, "Probability of dropping an input of a cell", fraction_below_one()},
      {"output_dropout", model, &O::output_dropout, "Probability of dropping an input of the output layer",
       fraction_below_one()},
      {"variational_dropout", model, &O::variational_dropout,
       "Dropout takes the same inputs of all words of a sentence"},
      rare({"output_attention", model, &O::output_attention,
            "The attention goes to the softmax and is fed back as input"}),
      rare({"pass_hidden_state", model, &O::pass_hidden_state,
            "The decoder starts from the encoder's last state (without attention it must)"}),
      {"language_model", model, &O::language_model,
       "A decoder alone, trained on the target text and scored by its perplexity; with --infer, it writes a "
       "sentence "
       "for each line, whose words do not matter"},
      rare({"forget_bias", model, &O::forget_bias, "Added to the forget gate's bias"}),
      {"init_op", model, choice<&O::init_op>(), "Distribution of the first weights"},
      rare({"init_weight", model, &O::init_weight, "For init_op=uniform: between minus this and this",
            above(0)}),

      {"optimizer", training, choice<&O::optimizer>(),
       "Optimiser. lamb means adam_epsilon=1e-6 and weight_decay=0.01, novograd adam_beta1=0.95 and "
       "adam_beta2=0.98, adamw weight_decay=0.01, as published, unless flags or the preset say otherwise"},
      {"learning_rate", training, &O::learning_rate, "Learning rate after warm-up", at_least(0)},
      {"batch_size", training, &O::batch_size, "Sentences per rank and step", between(1, 1 << 20)},
      {"batch_words", training, &O::batch_words,
       "Words per rank and step, of both sides, instead of batch_size sentences: of a group of like length "
       "(num_buckets), as many sentences as have together at most so many, if all were as long as the "
       "longest of the group; 0: batch_size",
       between(0, 1 << 28)},
      {"mini_batch_fit", training, &O::mini_batch_fit,
       "Before training, find the largest batch_size (or batch_words, if it is given) that workspace has "
       "room "
       "for; all ranks take the smallest of theirs. A run that goes on keeps it. The learning rate stays"},
      {"workspace", training, &O::workspace,
       "MB of memory that training may take in a rank, besides the program and the text: what is printed at "
       "the start, with a reserve of 15% and 64 MB. Larger batches are refused. 0: mini_batch_fit takes nine "
       "tenths of what is free on the host or the device, for its ranks together; other batches must fit "
       "into "
       "all that there is",
       at_least(0)},
      {"micro_batch_size", training, &O::micro_batch_size,
       "Sentences that a rank computes at a time, to save memory; their gradients are added up; 0: all",
       between(0, 1 << 20)},
      with_units(LengthUnits::any, {"num_train_steps", training, &O::num_train_steps,
                                    "Steps to train. Or a time, or target words: all that were trained on "
                                    "before a resume count, too",
                                    at_least(0)}),
      {"warmup_steps", training, &O::warmup_steps, "Steps over which the learning rate rises", at_least(0)},
      {"warmup_scheme", training, choice<&O::warmup_scheme>(),
       "t2t: exponentially from a hundredth; linear: in equal steps"},
      {"decay_scheme", training, choice<&O::decay_scheme>(),
       "luong5, luong10: halve 5 or 10 times after half of the steps; luong234: 4 times after two thirds; "
       "cosine, poly: to end_learning_rate at the end; exp: times decay_factor every decay_steps; "
       "inverse_sqrt: with the root of the steps, from the end of the warm-up; piecewise: by "
       "decay_boundaries and decay_rates; noam: inverse_sqrt after a linear warm-up, times learning_rate and "
       "1/sqrt(num_units); empty: constant"},
      rare({"start_decay_step", training, &O::start_decay_step,
            "exp, poly: the first step that decays; poly never starts before the warm-up ends", at_least(0)}),
      rare({"decay_steps", training, &O::decay_steps, "exp: steps between decays; 1: smoothly", at_least(1)}),
      rare({"decay_factor", training, &O::decay_factor,
            "exp: what each decay multiplies by; other than 1, it means decay_scheme=exp, as in older "
            "versions "
            "of tensorflow/nmt",
            above(0)}),
      rare({"decay_power", training, &O::decay_power, "poly: the power of the share of steps that are left",
            above(0)}),
      rare({"end_learning_rate", training, &O::end_learning_rate,
            "cosine, poly: learning rate after the last step", at_least(0)}),
      rare({"decay_boundaries", training, &O::decay_boundaries,
            "piecewise: the steps from which other rates hold, ascending, separated by commas"}),
      rare({"decay_rates", training, &O::decay_rates,
            "piecewise: those rates as multiples of learning_rate, one for each boundary"}),
      {"max_gradient_norm", training, &O::max_gradient_norm,
       "Gradients are scaled down to this norm, in which an embedding row counts once, with the sum of its "
       "gradients (tensorflow/nmt counts each occurrence of a word by itself, which would make the norm "
       "depend on how a batch is spread over ranks)",
       above(0)},
      {"label_smoothing", training, &O::label_smoothing, "Share of the target spread over all words",
       fraction_below_one()},
      rare({"num_sampled_softmax", training, &O::num_sampled_softmax,
            "In training, each word competes with this many that are drawn for the step, frequent ones (with "
            "a "
            "small number) more often, instead of with all; 0: with all. The dev perplexity is among all "
            "words "
            "(tensorflow/nmt's is among drawn ones, too)",
            between(0, 1 << 24)}),
      {"word_dropout", training, &O::word_dropout,
       "Probability that the model reads an unknown word in the place of a source or target word",
       fraction_below_one()},
      {"subword_sampling", training, &O::subword_sampling,
       "Splits words into other pieces each time they are read, for SentencePiece models. With a unigram "
       "model, which is what is trained here, a split has its probability to the power of this (0.1: nearly "
       "any; 1: mostly the best); with a BPE model, each merge is left out with this probability. 0: always "
       "the best split",
       at_least(0)},
      {"ema_decay", training, &O::ema_decay,
       "Keeps a moving average of the parameters, for scores and translating; each step keeps this share of "
       "it, fewer in the first steps. 0.999 is usual; 0: none",
       fraction_below_one()},
      {"on_divergence", training, choice<&O::on_divergence>(),
       "What to do if the loss or the gradient is not finite, or the perplexity above 1e20. stop: end with "
       "an error. rollback: go back to the newest good checkpoint, at half the learning rate, at most 5 "
       "times"},
      {"max_train_seconds", training, &O::max_train_seconds,
       "End training after the step in which this many seconds pass; 0: no limit", at_least(0)},
      {"random_seed", training, &O::random_seed, "Seed of everything random"},
      with_units(LengthUnits::steps,
                 {"phase1_steps", training, &O::phase1_steps,
                  "Steps of a first phase, which trains on short pairs alone; all other flags are for the "
                  "whole run. 0: no such phase",
                  at_least(0)}),
      {"phase1_max_len", training, &O::phase1_max_len,
       "Phase 1 takes the pairs of which no side has more tokens than this", between(0, 1 << 20)},
      {"phase1_batch_size", training, &O::phase1_batch_size,
       "Sentences per rank and step in phase 1; 0: batch_size", between(0, 1 << 20)},
      rare({"momentum", training, &O::momentum, "optimizer=momentum: decay of the sum of gradients",
            fraction_below_one()}),
      rare({"nesterov", training, &O::nesterov, "optimizer=momentum: looks ahead, as Nesterov's"}),
      rare(
          {"weight_decay", training, &O::weight_decay,
           "Share of a parameter that goes at each step of the learning rate: sgd, momentum and novograd add "
           "it to the gradient, after clipping; adamw and lamb to the step. Not of biases, gains and other "
           "parameters of one row, nor of given vectors",
           at_least(0)}),
      rare({"larc_eta", training, &O::larc_eta,
            "sgd, momentum: LARC, which limits a parameter's rate to this times its norm over its gradient's "
            "(after clipping); 0: off",
            at_least(0)}),
      rare({"adam_beta1", training, &O::adam_beta1, "adam, adamw, lamb, novograd: decay of the mean",
            fraction_below_one()}),
      rare({"adam_beta2", training, &O::adam_beta2, "adam, adamw, lamb, novograd: decay of the mean square",
            fraction_below_one()}),
      rare({"adam_epsilon", training, &O::adam_epsilon,
            "adam, adamw, lamb: added to the root of the bias-corrected mean square, as in the papers "
            "(tensorflow/nmt adds it to the uncorrected root, which is smaller in the first steps); "
            "novograd: to "
            "the mean norm",
            above(0)}),
      rare({"loss_per", training, choice<&O::loss_per>(),
            "What the summed loss is divided by; matters to SGD's step and to max_gradient_norm"}),

      {"dtype", training, choice<&O::dtype>(),
       "f32; tf32: the same, but GPUs round the factors of products to 10 bits of mantissa; or mixed: layers "
       "keep and "
       "multiply 16-bit numbers, half the memory and up to twice as fast; parameters, sums and the loss stay "
       "in 32, and so do gradients with f16, micro_batch_size or gradient_wire"},
      rare({"mixed_type", training, choice<&O::mixed_type>(),
            "The 16-bit numbers of mixed precision; auto: bf16, or f16 on GPUs without products of bf16 "
            "(compute "
            "capability below 8.0)"}),
      rare({"loss_scaling", training, choice<&O::loss_scaling>(),
            "Mixed precision: how the loss is multiplied, so that small gradients do not vanish; steps with "
            "gradients that are not finite are left out. auto: backoff for f16, and off for bf16, which has "
            "f32's range. "
            "backoff halves "
            "the scale then, and doubles it after loss_scale_window steps without; log_max follows the "
            "largest gradients"}),
      rare({"loss_scale", training, &O::loss_scale,
            "The loss scale of static, the first and largest of backoff, the largest of log_max",
            at_least(1)}),
      rare({"loss_scale_window", training, &O::loss_scale_window,
            "backoff: steps without overflow before the scale is doubled", at_least(1)}),
      this_run({"device", distribution, choice<&O::device>(),
                "Where to compute; with cuda, the ranks of a host take its devices in turn"}),
      this_run(
          {"rnn", distribution, choice<&O::rnn>(),
           "How LSTM layers that read whole sentences are computed: step by step (loop), or with cuda layers "
           "beside each other, each some steps behind the one that it reads (wavefront), or all steps of a "
           "layer at once (cudnn). auto: training on cuda measures all, and goes on with the fastest whose "
           "gradients are the loop's, up to rounding; a run that goes on from a checkpoint keeps its choice; "
           "all else uses loop"}),
      this_run(
          rare({"step_graph", distribution, &O::step_graph,
                "With cuda: a step, with the reduction of its gradients, is one CUDA graph, for which the "
                "batches of all ranks are padded alike. Without, it is some graphs with the reductions "
                "between them"})),
      this_run({"threads", distribution, &O::threads,
                "Threads per rank; 0: processors of the host / ranks on it", between(0, 4096)}),
      {"lr_scaling", distribution, choice<&O::lr_scaling>(),
       "How the learning rate grows with the number of ranks"},
      {"lr_schedule_unit", distribution, choice<&O::lr_schedule_unit>(),
       "What warm-up and decay count. updates: this job's updates. samples: the updates in which one worker "
       "would see as many sentences; warmup_steps and the steps of decays then count those (N ranks need an "
       "N-th as many), "
       "num_train_steps still counts this job's, and the decay ends with them"},
      {"sharded_update", distribution, &O::sharded_update,
       "Each rank updates a part of the parameters, with the optimiser's state of that part alone"},
      {"gradient_wire", distribution, choice<&O::gradient_wire>(),
       "Type of gradients between hosts; with 16 bits, the next step adds what rounding leaves"},
      rare({"sparse_embeddings", distribution, &O::sparse_embeddings,
            "Ranks exchange only the rows of an embedding's gradient whose words occur, where that is less"}),
      rare({"drift_check_steps", distribution, &O::drift_check_steps,
            "Steps between comparisons of all ranks' parameters, each of which reads them once; 0: never",
            at_least(0)}),

      this_run({"out_dir", saving, &O::out_dir, "Where checkpoints go; empty: nothing is saved"}),
      this_run({"override_loaded_hparams", saving, &O::override_loaded_hparams,
                "What holds where a run goes on from a checkpoint. Not given: what was saved, but for the "
                "flags of this command. true: this command, with its defaults. false: what was saved, but "
                "for the flags for translating"}),
      {"steps_per_stats", saving, &O::steps_per_stats, "Steps between lines of progress", at_least(1)},
      {"steps_per_eval", saving, &O::steps_per_eval,
       "Steps between checkpoints with dev perplexity; 0: 10 x steps_per_stats", at_least(0)},
      {"steps_per_external_eval", saving, &O::steps_per_external_eval,
       "Steps between scores of the dev set; 0: 5 x steps_per_eval", at_least(0)},
      {"metrics", saving, &O::metrics,
       "Scores of translations, separated by commas: " + metric_names() +
           ". The best checkpoint by each is kept in out_dir/best_METRIC"},
      {"early_stopping", saving, &O::early_stopping,
       "One of --metrics, or dev_ppl, the perplexity of the dev set: training ends when patience evaluations "
       "after each other gave no better one. With dev_ppl, out_dir/best_dev_ppl keeps the best checkpoint. "
       "Empty: training goes on to its end"},
      {"patience", saving, &O::patience, "early_stopping: evaluations to wait for a better score",
       at_least(1)},
      {"num_keep_ckpts", saving, &O::num_keep_ckpts, "Newest checkpoints to keep, besides the best; 0: all",
       at_least(0)},
      {"avg_ckpts", saving, &O::avg_ckpts,
       "Also score the mean of the num_keep_ckpts newest checkpoints, and keep the newest mean in "
       "out_dir/avg_checkpoints and the best in out_dir/avg_best_METRIC"},
      this_run({"log_jsonl", saving, &O::log_jsonl,
                "File for one JSON object per step, and one per evaluation with its scores; empty: "
                "out_dir/log.jsonl, if there is an out_dir"}),
      this_run({"log_csv", saving, &O::log_csv, "File for the same values, separated by commas"}),
      this_run(
          {"log_dir", saving, &O::log_dir, "Directory for the same values as TensorBoard's event files"}),
      this_run(rare({"profile", saving, &O::profile,
                     "Print at the end how long each operation of a step took, with --infer of all "
                     "translations, and what this machine could reach; on CPUs"})),
      rare({"sharded_checkpoints", saving, &O::sharded_checkpoints,
            "Every rank writes its share of a checkpoint; out_dir must be on a file system that all hosts "
            "share"}),
      rare({"background_checkpoints", saving, &O::background_checkpoints,
            "Training goes on while a copy of the model is written"}),

      this_run({"infer", translating, &O::infer, "Translate lines instead of training"}),
      this_run({"inference_input_file", translating, &O::inference_input_file,
                "Lines to translate; empty: standard input"}),
      this_run({"inference_output_file", translating, &O::inference_output_file,
                "Translations; empty: standard output"}),
      this_run({"ckpt", translating, &O::ckpt,
                "Checkpoint to translate with, or a directory whose newest is taken; empty: the newest of "
                "out_dir"}),
      {"infer_mode", translating, choice<&O::infer_mode>(),
       "beam_width above 0 means beam_search, sampling_temperature above 0 means sample"},
      {"beam_width", translating, &O::beam_width, "Hypotheses kept in beam search; 0: none",
       between(0, 1024)},
      {"length_penalty_weight", translating, &O::length_penalty_weight,
       "Beam search: log-probabilities are divided by ((5 + length)/6)^this", at_least(0)},
      {"coverage_penalty_weight", translating, &O::coverage_penalty_weight,
       "Beam search: weight of source words left without attention", at_least(0)},
      {"sampling_temperature", translating, &O::sampling_temperature,
       "Sampling: each word is drawn with its probability to the power 1/this, from random_seed",
       at_least(0)},
      {"num_translations_per_input", translating, &O::num_translations_per_input,
       "Lines written for each line: the best of the beam, or as many samples", between(1, 1024)},
      this_run(
          {"scores", translating, &O::scores,
           "Write after each translation a tab and its score: its log-probability, divided by the length "
           "penalty, with the coverage penalty"}),
      this_run(
          {"alignments", translating, &O::alignments,
           "Write after each translation a tab, and which word of the line each of its words belongs to, as "
           "0-0 1-2 ...: the source's word, which got the most attention, and the translation's. Words stand "
           "between blanks, and count from 0"}),
      {"infer_batch_size", translating, &O::infer_batch_size,
       "Sentences translated at a time; fewer where they would need more than 1 GiB", between(1, 1 << 20)},
      {"src_max_len_infer", translating, &O::src_max_len_infer,
       "Longer sources are cut, in translating and in the dev perplexity; 0: no limit", at_least(0)},
      {"tgt_max_len_infer", translating, &O::tgt_max_len_infer,
       "Longest translation, 0: twice the source's and 10; longer targets are cut in the dev perplexity, 0: "
       "no limit",
       at_least(0)},
      this_run(rare({"inference_list", translating, &O::inference_list,
                     "Numbers of the lines to translate, from 0, separated by commas; empty: all"})),
      this_run(rare({"inference_ref_file", translating, &O::inference_ref_file,
                     "References of the lines, to print the metrics of their translations"})),

      this_run({"model", command, &O::model,
                "Directory of a run, whose newest checkpoint is taken, or a checkpoint; to translate also "
                "several, "
                "separated by commas, whose probabilities are averaged"}),
      this_run({"hyp", command, &O::hyp, "Translations to score"}),
      this_run({"ref", command, &O::ref, "Reference translations, line by line"}),
      this_run({"src_file", command, &O::src_file, "Lines of the source language"}),
      this_run({"tgt_file", command, &O::tgt_file, "A translation of each line of src_file"}),
      this_run(
          {"tune", command, &O::tune,
           "What to try: FLAG=LOW:HIGH gives values in equal steps, FLAG=LOW:HIGH:log in equal ratios, and "
           "FLAG=A,B,C these. Empty: the learning rate, from a quarter to four times --learning_rate"}),
      this_run(
          {"candidates", command, &O::candidates, "How many values to try of a range", between(2, 1024)}),
      this_run(
          with_units(LengthUnits::steps,
                     {"rung_steps", command, &O::rung_steps,
                      "Steps that all candidates are trained; then the better half goes on to twice as many, "
                      "and so on. More than warmup_steps",
                      at_least(1)})),
      this_run({"last", command, &O::last, "Newest checkpoints of --model to take; 0: all", at_least(0)}),
      this_run(
          {"out", command, &O::out,
           "average: the directory that is written, which must not exist. export: the file. report: the "
           "picture, which ends in .svg or .png; empty: report.svg and report.png in the run's directory"}),
  };
}

std::string quoted_if_empty(std::string_view text) {
  return text.empty() ? std::string("\"\"") : std::string(text);
}

[[noreturn]] void wrong_type(const Flag& flag, std::string_view text, std::string_view expected) {
  throw ddl::Error(ddl::ErrorCode::invalid_argument, fmt::format("--{}={}: expected {}", flag.name,
                                                                 quoted_if_empty(printable(text)), expected));
}

template <typename T>
T parse_number(const Flag& flag, std::string_view text, const std::string& expected) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) wrong_type(flag, text, expected);
  return value;
}

bool parse_bool(const Flag& flag, std::string_view text) {
  if (text == "true" || text == "True" || text == "1") return true;
  if (text == "false" || text == "False" || text == "0") return false;
  wrong_type(flag, text, "true or false");
}

Length parse_length(const Flag& flag, std::string_view text) {
  const bool any = flag.units == LengthUnits::any;
  const std::string expected =
      fmt::format("a whole number of steps, as 500 or 10ku (updates){}{}",
                  flag.units == LengthUnits::steps ? ""
                  : any                            ? ", epochs, as 5e"
                                                   : ", or epochs, as 5e",
                  any ? ", a time, as 2h, 30m or 90s, or target words, as 50Mw" : "");
  const std::optional<Length> length = Length::parse(text);
  if (!length) wrong_type(flag, text, expected);
  const bool fits = length->unit() == LengthUnit::steps || any ||
                    (length->unit() == LengthUnit::epochs && flag.units == LengthUnits::steps_or_epochs);
  if (!fits) wrong_type(flag, text, expected);
  return *length;
}

/// Whether the type is that of a list of numbers or lengths.
template <typename T>
inline constexpr bool is_list = false;
template <typename T>
inline constexpr bool is_list<std::vector<T>> = std::is_arithmetic_v<T> || std::is_same_v<T, Length>;

template <typename T>
T parse_as(const Flag& flag, std::string_view text) {
  if constexpr (std::is_same_v<T, bool>) {
    return parse_bool(flag, text);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return std::string(text);
  } else if constexpr (std::is_same_v<T, Length>) {
    return parse_length(flag, text);
  } else if constexpr (std::is_same_v<T, std::vector<const Metric*>>) {
    return metrics_of(text);
  } else if constexpr (is_list<T>) {
    T values;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      values.push_back(parse_as<typename T::value_type>(flag, text.substr(begin, end - begin)));
      if (end + 1 == text.size()) wrong_type(flag, text, "a number after the last comma");
      begin = end + 1;
    }
    return values;
  } else if constexpr (std::is_same_v<T, double>) {
    const double value = parse_number<double>(flag, text, "a number");
    if (!std::isfinite(value)) wrong_type(flag, text, "a finite number");
    return value;
  } else {
    return parse_number<T>(flag, text,
                           fmt::format("a whole number from {} to {}", std::numeric_limits<T>::min(),
                                       std::numeric_limits<T>::max()));
  }
}

}  // namespace

std::string_view title(FlagGroup group) {
  switch (group) {
    case general:
      return "General";
    case data:
      return "Data and vocabulary";
    case model:
      return "Model";
    case training:
      return "Training";
    case distribution:
      return "Distribution over ranks and devices";
    case saving:
      return "Checkpoints, scores and logs";
    case translating:
      return "Translating";
    case command:
      return "This command";
  }
  return "";
}

bool Range::contains(double value) const {
  if (std::isnan(value)) return false;
  if (least && (without_least ? value <= *least : value < *least)) return false;
  if (most && (without_most ? value >= *most : value > *most)) return false;
  return true;
}

std::string Range::text() const {
  std::string text;
  if (least) text = fmt::format("{} {}", without_least ? "above" : "at least", *least);
  if (most) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", without_most ? "below" : "at most", *most);
  }
  return text;
}

std::string Flag::allowed() const {
  const auto* choice = std::get_if<ChoiceMember>(&member);
  if (choice == nullptr) return range.text();
  std::vector<std::string> shown;
  for (const std::string_view value : choice->names) shown.push_back(quoted_if_empty(value));
  return fmt::format("{}", fmt::join(shown, " | "));
}

std::span<const Flag> all_flags() {
  static const std::vector<Flag> table = make_table();
  return table;
}

const Flag* find_flag(std::string_view name) {
  const auto flags = all_flags();
  const auto found = std::ranges::find(flags, name, &Flag::name);
  return found == flags.end() ? nullptr : &*found;
}

std::vector<std::string_view> flags_without_command() {
  std::vector<std::string_view> names;
  for (const Flag& flag : all_flags()) {
    if (flag.group != command) names.push_back(flag.name);
  }
  return names;
}

std::string value_text(const Flag& flag, const Options& options) {
  return std::visit(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), ChoiceMember>) {
          return std::string(member.get(options));
        } else if constexpr (std::is_same_v<decltype(member), std::vector<const Metric*> Options::*>) {
          return names_of(options.*member);
        } else if constexpr (std::is_same_v<decltype(member), Length Options::*>) {
          return (options.*member).text();
        } else if constexpr (std::is_same_v<decltype(member), std::vector<Length> Options::*>) {
          std::vector<std::string> texts;
          for (const Length& length : options.*member) texts.push_back(length.text());
          return fmt::format("{}", fmt::join(texts, ","));
        } else if constexpr (is_list<std::remove_cvref_t<decltype(options.*member)>>) {
          return fmt::format("{}", fmt::join(options.*member, ","));
        } else {
          return fmt::format("{}", options.*member);
        }
      },
      flag.member);
}

void assign(const Flag& flag, std::string_view text, Options& options) {
  std::visit(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), ChoiceMember>) {
          if (member.set(options, text)) return;
          throw ddl::Error(
              ddl::ErrorCode::invalid_argument,
              fmt::format("--{}={}: must be one of: {}", flag.name, printable(text), flag.allowed()));
        } else {
          options.*member = parse_as<std::remove_cvref_t<decltype(options.*member)>>(flag, text);
        }
      },
      flag.member);
}

void copy_value(const Flag& flag, const Options& from, Options& to) {
  std::visit(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), ChoiceMember>) {
          member.set(to, member.get(from));
        } else {
          to.*member = from.*member;
        }
      },
      flag.member);
}

}  // namespace nmt
