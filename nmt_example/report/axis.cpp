#include "nmt_example/report/axis.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace nmt {

Axis::Axis(double least, double most, Scale scale, int most_labels)
    : least_(least), most_(most), scale_(scale) {
  const bool is_logarithmic = scale == Scale::logarithmic;
  if (!(most_ - least_ > 1e-300)) {  // all values are the same
    const double around = std::max(std::abs(least_) / 2, 1e-12);
    least_ = is_logarithmic ? least_ / 2 : least_ - around;
    most_ = is_logarithmic ? most_ * 2 : most_ + around;
  }
  is_logarithmic ? label_powers(most_labels) : label_evenly(most_labels);
}

void Axis::label_evenly(int most_labels) {
  const double least_distance = (most_ - least_) / most_labels;
  const double power = std::pow(10.0, std::floor(std::log10(least_distance)));
  double distance = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= least_distance) distance = factor * power;
  }
  const bool to_labels = scale_ == Scale::linear_to_labels;
  const double from = least_ / distance, to = most_ / distance;
  const auto first = static_cast<long long>(to_labels ? std::floor(from + 1e-9) : std::ceil(from - 1e-9));
  const auto last = static_cast<long long>(to_labels ? std::ceil(to - 1e-9) : std::floor(to + 1e-9));
  if (to_labels) {
    least_ = static_cast<double>(first) * distance;
    most_ = static_cast<double>(last) * distance;
  }
  for (long long i = first; i <= last; ++i) labels_.push_back(static_cast<double>(i) * distance);
}

void Axis::label_powers(int most_labels) {
  // 1, 2 and 5 of each power of ten; if those are too many, the powers alone, or some of them.
  std::vector<double> all, powers;
  for (int power = static_cast<int>(std::floor(std::log10(least_))); std::pow(10.0, power) <= most_;
       ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, power);
      if (value < least_ || value > most_) continue;
      all.push_back(value);
      if (factor == 1.0) powers.push_back(value);
    }
  }
  const auto most = static_cast<std::size_t>(most_labels);
  labels_ = all.size() <= most || powers.empty() ? all : powers;
  if (labels_.size() <= most) return;
  const std::size_t every = (labels_.size() + most - 1) / most;
  std::vector<double> some;
  for (std::size_t i = 0; i < labels_.size(); i += every) some.push_back(labels_[i]);
  labels_ = some;
}

double Axis::position(double value) const {
  if (scale_ == Scale::logarithmic) return std::log(value / least_) / std::log(most_ / least_);
  return (value - least_) / (most_ - least_);
}

std::string Axis::text(double label) const {
  if (label == 0) return "0";
  const double largest = scale_ == Scale::logarithmic
                             ? std::abs(label)
                             : std::max(std::abs(labels_.front()), std::abs(labels_.back()));
  if (largest >= 1e7) return fmt::format("{:g}M", label / 1e6);
  if (largest >= 1e4) return fmt::format("{:g}k", label / 1e3);
  return fmt::format("{:.4g}", label);
}

}  // namespace nmt
