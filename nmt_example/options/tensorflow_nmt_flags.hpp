#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace nmt {

/// A flag of tensorflow/nmt that is not an option here. Values that match the behaviour here are accepted, so
/// that command lines written for tensorflow/nmt work; others are refused.
struct TensorflowNmtFlag {
  std::string_view name;
  bool is_switch;
  std::vector<std::string_view> accepted;  ///< Empty: no value is accepted.
  std::string_view instead;                ///< What is available instead.
};

std::span<const TensorflowNmtFlag> tensorflow_nmt_flags();
const TensorflowNmtFlag* find_tensorflow_nmt_flag(std::string_view name);

/// Throws `unsupported`, with what is available instead, unless `value` is accepted.
void check_tensorflow_nmt_flag(const TensorflowNmtFlag& flag, std::string_view value);

}  // namespace nmt
