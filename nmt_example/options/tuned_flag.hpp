#pragma once

#include <string>
#include <vector>

#include "nmt_example/options/flag_table.hpp"

namespace nmt {

/// A flag, and the values to try for it.
struct TunedFlag {
  const Flag* flag;
  std::vector<std::string> values;  ///< As on the command line; at least two, none twice.
};

/// What --tune says: "FLAG=LOW:HIGH" and --candidates give so many values in equal steps, "FLAG=LOW:HIGH:log"
/// in equal ratios, both rounded to three digits, "FLAG=A,B,C" these. Empty: learning_rate, from a quarter to
/// four times --learning_rate in equal ratios. Throws `invalid_argument` for other text, a flag that is not a
/// number of a run, values that the flag does not allow, and fewer than two.
TunedFlag tuned_flag(const Options& options);

}  // namespace nmt
