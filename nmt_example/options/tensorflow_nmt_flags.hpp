#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nmt {

/// A flag of tensorflow/nmt that is not an option here. Values that match the behaviour here are accepted, so
/// that command lines written for tensorflow/nmt work; others are refused, unless none changes a result.
struct TensorflowNmtFlag {
  std::string_view name;
  bool is_switch;
  std::vector<std::string_view> accepted;  ///< The values that match the behaviour here.
  std::string_view instead;                ///< What is done here, or what to do instead.
  bool changes_results = true;             ///< False: any value is accepted.

  /// The accepted values in words.
  [[nodiscard]] std::string accepted_text() const;
};

std::span<const TensorflowNmtFlag> tensorflow_nmt_flags();
const TensorflowNmtFlag* find_tensorflow_nmt_flag(std::string_view name);

/// Returns whether `value` matches the behaviour here. Throws `unsupported`, with what to do instead, unless
/// it does or the flag changes no result.
bool check_tensorflow_nmt_flag(const TensorflowNmtFlag& flag, std::string_view value);

}  // namespace nmt
