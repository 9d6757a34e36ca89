#include "nmt_example/model/sampled_words.hpp"

#include <cmath>

#include "nmt_example/backend/philox.hpp"

namespace nmt {
namespace {

constexpr std::uint32_t purpose = 0x73616d70;

/// In [0, 1).
double fraction(std::uint32_t high, std::uint32_t low) {
  return (static_cast<double>(high >> 5) * 67108864.0 + static_cast<double>(low >> 6)) / 9007199254740992.0;
}

}  // namespace

SampledWords::SampledWords(std::int64_t vocabulary, std::int64_t drawn)
    : drawn_(drawn),
      log_range_(std::log1p(static_cast<double>(vocabulary))),
      places_(static_cast<std::size_t>(vocabulary), -1) {
  ids_.reserve(places_.size());
}

std::int32_t SampledWords::place_of(std::int32_t word) {
  std::int32_t& place = places_[static_cast<std::size_t>(word)];
  if (place < 0) {
    place = static_cast<std::int32_t>(ids_.size());
    ids_.push_back(word);
  }
  return place;
}

void SampledWords::draw(std::uint64_t seed, std::uint64_t step) {
  for (const std::int32_t id : ids_) places_[static_cast<std::size_t>(id)] = -1;
  ids_.clear();
  const auto vocabulary = static_cast<std::int64_t>(places_.size());
  for (tries_ = 0; static_cast<std::int64_t>(ids_.size()) < drawn_; ++tries_) {
    const auto words = philox({static_cast<std::uint32_t>(tries_ / 2), purpose,
                               static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)},
                              {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const std::size_t half = tries_ % 2 == 0 ? 0 : 2;
    const auto word =
        static_cast<std::int64_t>(std::exp(fraction(words[half], words[half + 1]) * log_range_)) - 1;
    place_of(static_cast<std::int32_t>(word % vocabulary));
  }
}

double SampledWords::expected_count(std::int32_t word) const {
  const double probability = std::log((word + 2.0) / (word + 1.0)) / log_range_;
  return -std::expm1(static_cast<double>(tries_) * std::log1p(-probability));
}

}  // namespace nmt
