#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "ddl/checkpoint.hpp"
#include "ddl/error.hpp"
#include "nmt_example/commands/command.hpp"
#include "nmt_example/report/chart.hpp"
#include "nmt_example/report/run_history.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;

std::vector<Point> points_of(const RunHistory& history, const std::string& name) {
  const auto found = history.find(name);
  return found == history.end() ? std::vector<Point>() : found->second;
}

std::vector<Point> times(std::vector<Point> points, double factor) {
  for (Point& point : points) point.value *= factor;
  return points;
}

/// The translations' scores, of the dev set and, as one point, of the test set.
Chart scores_of(const RunHistory& history) {
  Chart chart{.title = "Scores of translations", .unit = "score (0 to 100)", .lines = {}};
  for (const auto& [name, points] : history) {
    const bool is_score = (name.starts_with("dev_") || name.starts_with("test_")) && !name.ends_with("_ppl");
    if (!is_score) continue;
    std::string words = name;
    words[words.find('_')] = ' ';
    chart.lines.push_back({words, points, true});
  }
  return chart;
}

std::vector<Chart> charts_of(const RunHistory& history) {
  std::vector<Chart> charts = {
      {"Loss", "nats per target word", {{"training", points_of(history, "loss")}}},
      {"Perplexity",
       "perplexity, logarithmic",
       {{"training", points_of(history, "ppl")}, {"dev", points_of(history, "dev_ppl"), true}},
       true},
      scores_of(history),
      {"Learning rate", "learning rate", {{"", points_of(history, "lr")}}},
      {"Speed", "words/s, source and target", {{"", points_of(history, "words_per_s")}}},
      {"Exchange of gradients hidden behind backward",
       "% of its time",
       {{"", times(points_of(history, "hidden"), 100)}}}};
  for (Chart& chart : charts)
    std::erase_if(chart.lines, [](const ChartLine& line) { return line.points.empty(); });
  std::erase_if(charts, [](const Chart& chart) { return chart.lines.empty(); });
  return charts;
}

/// The log of a run's directory, or the file itself.
fs::path log_of(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  fs::path log = path / "log.jsonl";
  if (fs::exists(log)) return log;
  throw ddl::Error(
      ddl::ErrorCode::io,
      fmt::format("{}: there is no log in this directory; ddl_nmt train --out_dir={} writes it, and "
                  "what --log_jsonl wrote elsewhere may be given itself",
                  log.string(), path.string()));
}

ImageFormat format_of(const fs::path& file) {
  if (file.extension() == ".svg") return ImageFormat::svg;
  if (file.extension() == ".png") return ImageFormat::png;
  throw ddl::Error(ddl::ErrorCode::invalid_argument,
                   fmt::format("--out={}: expected a name that ends in .svg or .png", file.string()));
}

void write_report(const std::string& run, const std::string& out) {
  std::vector<fs::path> files = {out};
  if (out.empty()) {
    const fs::path base = fs::is_directory(run) ? fs::path(run) / "report" : fs::path(run);
    files = {fs::path(base).replace_extension(".svg"), fs::path(base).replace_extension(".png")};
  }
  for (const fs::path& file : files) format_of(file);
  const RunHistory history = read_history(log_of(run).string());
  const std::vector<Chart> charts = charts_of(history);
  if (charts.empty()) {
    throw ddl::Error(ddl::ErrorCode::corrupt_data,
                     fmt::format("{}: this log has none of the values that are drawn", log_of(run).string()));
  }
  double last_step = 0;
  for (const auto& [name, points] : history) last_step = std::max(last_step, points.back().step);
  const std::string heading =
      fmt::format("{}: {:.0f} steps", fs::absolute(run).lexically_normal().filename().string(), last_step);
  for (const fs::path& file : files) {
    ddl::write_file_atomically(file, draw(heading, charts, format_of(file)));
    fmt::print("{}\n", file.string());
  }
}

void report(ddl::Context& context, ParsedOptions parsed) {
  context.root_only("draw the run", [&] {
    if (parsed.arguments.size() != 1) {
      throw ddl::Error(
          ddl::ErrorCode::invalid_argument,
          fmt::format("ddl_nmt report: expected the directory of one run or its log, found {} names; "
                      "ddl_nmt report --help shows an example",
                      parsed.arguments.size()));
    }
    write_report(parsed.arguments.front(), parsed.options.out);
  });
}

}  // namespace

Command report_command() {
  return {{.name = "report",
           .purpose =
               "Draws a run from its log: loss, perplexity, scores, learning rate, words per second, and how "
               "much of the exchange of gradients was hidden behind backward",
           .example = "  ddl_nmt report model                   # model/report.svg and model/report.png\n"
                      "  ddl_nmt report log.jsonl --out=run.svg",
           .flags = {"out"},
           .arguments = "DIRECTORY|LOG"},
          report};
}

}  // namespace nmt
