#include "nmt_example/metrics/metric.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "nmt_example/metrics/accuracy.hpp"
#include "nmt_example/metrics/bleu.hpp"
#include "nmt_example/metrics/chrf.hpp"
#include "nmt_example/metrics/rouge.hpp"
#include "nmt_example/metrics/ter.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

using Lines = std::span<const std::string>;

/// A metric whose text is just its name and value.
template <double (*function)(Lines, Lines)>
MetricScore named(const char* name, Lines translations, Lines references) {
  const double value = function(translations, references);
  return {value, fmt::format("{} = {:.2f}", name, value)};
}

constexpr Metric table[] = {
    {"bleu", "sacreBLEU's, of joined text",
     [](Lines translations, Lines references) {
       const BleuScore bleu = corpus_bleu(translations, references);
       return MetricScore{bleu.score, to_string(bleu)};
     }},
    {"chrf", "sacreBLEU's chrF, of joined text",
     [](Lines t, Lines r) { return named<corpus_chrf>("chrF", t, r); }},
    {"ter", "sacreBLEU's translation edit rate, of joined text; smaller is better",
     [](Lines t, Lines r) { return named<corpus_ter>("TER", t, r); }, true},
    {"tokenized_bleu", "tensorflow/nmt's bleu, of the words between blanks as they are, not smoothed",
     [](Lines t, Lines r) { return named<tokenized_bleu>("tokenized BLEU", t, r); }},
    {"rouge", "tensorflow/nmt's, the mean ROUGE-L of the lines",
     [](Lines t, Lines r) { return named<rouge_l>("ROUGE-L", t, r); }},
    {"accuracy", "tensorflow/nmt's, the percentage of lines that equal their reference",
     [](Lines t, Lines r) { return named<accuracy>("accuracy", t, r); }},
    {"word_accuracy", "tensorflow/nmt's, the mean percentage of a line's words that equal the reference's",
     [](Lines t, Lines r) { return named<word_accuracy>("word accuracy", t, r); }},
};

[[noreturn]] void refuse(std::string_view names, const std::string& what) {
  std::string known;
  for (const Metric& metric : table) known += fmt::format("{}{}", known.empty() ? "" : ", ", metric.name);
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   fmt::format("--metrics={}: {}; the metrics are: {}", printable(names), what, known));
}

}  // namespace

std::span<const Metric> all_metrics() { return table; }

std::vector<const Metric*> metrics_of(std::string_view names) {
  std::vector<const Metric*> metrics;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    const auto* const found = std::ranges::find(table, name, &Metric::name);
    if (found == std::end(table)) refuse(names, fmt::format("\"{}\" is none", printable(name)));
    if (std::ranges::find(metrics, found) != metrics.end())
      refuse(names, fmt::format("{} is repeated", name));
    metrics.push_back(found);
    begin = end + 1;
  }
  return metrics;
}

std::string names_of(std::span<const Metric* const> metrics) {
  std::string text;
  for (const Metric* metric : metrics) text += fmt::format("{}{}", text.empty() ? "" : ",", metric->name);
  return text;
}

std::string metric_names() {
  std::string text;
  for (const Metric& metric : table) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", metric.name, metric.help);
  }
  return text;
}

void require_pairs(Lines translations, Lines references) {
  if (translations.size() == references.size() && !translations.empty()) return;
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   fmt::format("{} hypotheses and {} references; expected as many of each, at least 1",
                               translations.size(), references.size()));
}

}  // namespace nmt
