#include "nmt_example/options/tensorflow_nmt_flags.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "ddl/error.hpp"

namespace nmt {

std::span<const TensorflowNmtFlag> tensorflow_nmt_flags() {
  static const std::vector<TensorflowNmtFlag> table = {
      {"residual", true, {"false"}, "layers are stacked without residual connections"},
      {"unit_type", false, {"lstm"}, "cells are LSTM cells (lstm)"},
      {"time_major", true, {"true"}, "time is always the outer dimension (true)"},
      {"attention_architecture", false, {"standard"}, "the top layer attends (standard)"},
      {"num_embeddings_partitions", false, {"0"}, "an embedding is one table (0)"},
      {"embed_prefix", false, {""}, "embeddings are trained with the model"},
      {"sos", false, {"<s>"}, "a sentence starts with <s>"},
      {"eos", false, {"</s>"}, "a sentence ends with </s>"},
      {"check_special_token", true, {"true"}, "special tokens are always checked (true)"},
      {"source_reverse", true, {"false"}, "sources are read in order; --encoder_type=bi reads both ways"},
      {"use_char_encode", true, {"false"}, "text is split into words or pieces, see --subword_option"},
      {"max_train", false, {"0"}, "all of the training text is used (0)"},
      {"num_sampled_softmax", false, {"0"}, "the softmax is over the whole vocabulary (0)"},
      {"start_decay_step", false, {"0"}, "--decay_scheme=luong5, luong10, luong234 or cosine"},
      {"decay_steps", false, {"10000"}, "--decay_scheme=luong5, luong10, luong234 or cosine"},
      {"decay_factor", false, {"1", "1.0"}, "--decay_scheme=luong5, luong10, luong234 or cosine"},
      {"learning_rate_decay_scheme", false, {""}, "--decay_scheme=luong5, luong10, luong234 or cosine"},
      {"learning_rate_warmup_steps", false, {"0"}, "--warmup_steps with --warmup_scheme=t2t or linear"},
      {"metrics", false, {"bleu"}, "translations are scored with BLEU (bleu)"},
      {"avg_ckpts", true, {"false"}, "each checkpoint is used by itself; --num_keep_ckpts keeps several"},
      {"override_loaded_hparams", true, {"true"}, "flags always override a checkpoint's options (true)"},
      {"language_model", true, {"false"}, "the model translates, with an encoder and a decoder"},
      {"inference_list", false, {""}, "all lines of --inference_input_file are translated"},
      {"inference_ref_file", false, {""}, "--test_prefix gives BLEU at the end of training"},
      {"sampling_temperature", false, {"0", "0.0"}, "--infer_mode=greedy or beam_search"},
      {"num_translations_per_input", false, {"1"}, "one translation is written for each line (1)"},
      {"num_gpus", false, {"0", "1"}, "start one process per worker: mpirun -np N"},
      {"num_workers", false, {"1"}, "start one process per worker: mpirun -np N"},
      {"jobid", false, {"0"}, "start one process per worker: mpirun -np N"},
      {"num_inter_threads", false, {"0"}, "--threads"},
      {"num_intra_threads", false, {"0"}, "--threads"},
      {"log_device_placement", true, {"false"}, "--device"},
      {"colocate_gradients_with_ops", true, {"true"}, "gradients are computed where the operation is (true)"},
      {"scope", false, {""}, "parameters have fixed names"},
  };
  return table;
}

const TensorflowNmtFlag* find_tensorflow_nmt_flag(std::string_view name) {
  const auto flags = tensorflow_nmt_flags();
  const auto found = std::ranges::find(flags, name, &TensorflowNmtFlag::name);
  return found == flags.end() ? nullptr : &*found;
}

void check_tensorflow_nmt_flag(const TensorflowNmtFlag& flag, std::string_view value) {
  const std::string_view plain = value == "True" ? "true" : value == "False" ? "false" : value;
  if (std::ranges::find(flag.accepted, plain) != flag.accepted.end()) return;
  throw ddl::Error(ddl::ErrorCode::unsupported,
                   fmt::format("--{}={} of tensorflow/nmt is not supported; available: {}", flag.name,
                               value.empty() ? "\"\"" : value, flag.instead));
}

}  // namespace nmt
