#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace nmt {

/// A flag of tensorflow/nmt that is not an option here. It is accepted with the values that say what is
/// done anyway, so that command lines written for tensorflow/nmt work, and refused with others.
struct TensorflowNmtFlag {
  std::string_view name;
  bool is_switch;
  std::vector<std::string_view> accepted;  ///< Empty: no value is.
  std::string_view instead;                ///< What is available.
};

std::span<const TensorflowNmtFlag> tensorflow_nmt_flags();
const TensorflowNmtFlag* find_tensorflow_nmt_flag(std::string_view name);

/// Throws `unsupported`, saying what is available, unless `value` is one of the accepted.
void check_tensorflow_nmt_flag(const TensorflowNmtFlag& flag, std::string_view value);

}  // namespace nmt
