#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nmt_example/options/options.hpp"

namespace nmt {

/// A named set of flags.
struct Preset {
  std::string_view name;
  std::string_view help;
  std::vector<std::pair<std::string_view, std::string_view>> flags;  ///< Name and value.
};

std::span<const Preset> presets();

/// Sets the preset's flags. Throws `invalid_argument`, listing the presets, if there is none of that name.
void apply_preset(std::string_view name, Options& options);

}  // namespace nmt
