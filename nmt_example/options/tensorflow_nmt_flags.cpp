#include "nmt_example/options/tensorflow_nmt_flags.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {

std::span<const TensorflowNmtFlag> tensorflow_nmt_flags() {
  constexpr bool no_result = false;
  static const std::vector<TensorflowNmtFlag> table = {
      // Models.
      {"source_reverse", true, {"false"}, "sources are read in order; --encoder_type=bi reads both ways"},
      // Other names of schedules, from older versions.
      {"learning_rate_decay_scheme", false, {""}, "--decay_scheme, with luong5, luong10, luong234 or others"},
      {"learning_rate_warmup_steps", false, {"0"}, "--warmup_steps with --warmup_scheme=t2t or linear"},
      // How the work is shared.
      {"num_gpus", false, {"0", "1"}, "start one process per GPU: mpirun -np N ddl_nmt --device=cuda"},
      {"num_workers",
       false,
       {"1"},
       "all processes share the work, in training and in translating: mpirun -np N ddl_nmt ..."},
      {"jobid",
       false,
       {"0"},
       "mpirun numbers the processes and one command starts them all: mpirun -np N ddl_nmt ..."},
      {"num_embeddings_partitions",
       false,
       {"0", "1"},
       "an embedding is one table, and --sparse_embeddings sends only the rows that are used; leave the flag "
       "out"},
      // Without influence on results.
      {"time_major", true, {"true"}, "time is always the outer dimension", no_result},
      {"log_device_placement", true, {"false"}, "--device says where a rank computes", no_result},
      {"colocate_gradients_with_ops",
       true,
       {"true"},
       "gradients are computed where the operation is",
       no_result},
      {"num_inter_threads", false, {"0"}, "--threads gives a rank's threads", no_result},
      {"num_intra_threads", false, {"0"}, "--threads gives a rank's threads", no_result},
      {"scope", false, {""}, "parameters have fixed names", no_result},
  };
  return table;
}

const TensorflowNmtFlag* find_tensorflow_nmt_flag(std::string_view name) {
  const auto flags = tensorflow_nmt_flags();
  const auto found = std::ranges::find(flags, name, &TensorflowNmtFlag::name);
  return found == flags.end() ? nullptr : &*found;
}

std::string TensorflowNmtFlag::accepted_text() const {
  if (!changes_results) return "any";
  std::string text;
  for (const std::string_view value : accepted) {
    text += fmt::format("{}{}", text.empty() ? "" : " or ", value.empty() ? "\"\"" : value);
  }
  return text;
}

bool check_tensorflow_nmt_flag(const TensorflowNmtFlag& flag, std::string_view value) {
  std::string_view plain = value == "True" ? "true" : value == "False" ? "false" : value;
  if (flag.is_switch && (value == "1" || value == "0")) plain = value == "1" ? "true" : "false";
  if (std::ranges::find(flag.accepted, plain) != flag.accepted.end()) return true;
  if (!flag.changes_results) return false;
  throw ddl::Error(ddl::ErrorCode::unsupported,
                   fmt::format("--{}={} of tensorflow/nmt is not supported; available: {}", flag.name,
                               value.empty() ? "\"\"" : printable(value), flag.instead));
}

}  // namespace nmt
