#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nmt {

struct MetricScore {
  double value =
      0;  ///< 0 to 100; greater is better, unless the metric says otherwise. Rates may be above 100.
  std::string text;  ///< For people, with the name: "BLEU = 33.12 66.1/41.9/28.0/19.3 (BP = ...)".
};

/// A score of translated text. To add one, write its function and a row in metric.cpp's table.
struct Metric {
  std::string_view name;  ///< As in --metrics.
  std::string_view help;
  /// Scores lines of joined text; translation i belongs to reference i. There are as many of each, at
  /// least 1.
  MetricScore (*score)(std::span<const std::string> translations, std::span<const std::string> references);
  bool counts_errors = false;  ///< Smaller is better.

  [[nodiscard]] bool is_better(double value, double than) const {
    return counts_errors ? value < than : value > than;
  }
};

std::span<const Metric> all_metrics();

/// The metrics of a list of names separated by commas, in its order. Throws `invalid_argument` for a name
/// that is unknown or repeated, and for an empty list.
std::vector<const Metric*> metrics_of(std::string_view names);
/// The opposite.
std::string names_of(std::span<const Metric* const> metrics);

/// Every metric with its help, in words.
std::string metric_names();

/// Checks that there are as many translations as references, at least 1; throws `invalid_argument`.
void require_pairs(std::span<const std::string> translations, std::span<const std::string> references);

}  // namespace nmt
