#include "scaling/model_gradients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ddl/error.hpp"
#include "ddl/tools/topo_commands.hpp"

namespace scaling {
namespace {

Gradient parse_line(const std::string& line) {
  const auto json = nlohmann::json::parse(line);
  Gradient gradient{json.at("name"), json.at("elements"), json.value("row_width", std::size_t{0}),
                    json.at("ready")};
  const bool has_rows = gradient.row_width == 0 || gradient.elements % gradient.row_width == 0;
  if (gradient.elements > 0 && has_rows && gradient.ready >= 0 && gradient.ready <= 1) return gradient;
  throw std::invalid_argument("expected elements above 0, in whole rows, and ready from 0 to 1");
}

}  // namespace

ModelGradients reference_gradients() {
  constexpr std::size_t units = 1024, words = 36'548;
  struct Layer {
    std::string_view name;
    double ready;
  };
  // Medians of five steps of `DDL_TIMELINE=trace.json ddl_nmt --preset=ddl_reference --batch_size=64` in fp32
  // on two cores of an AMD EPYC (Zen 4): from the begin of "step" to each "ready", relative to the step.
  const auto add = [](ModelGradients& to, const Layer& layer) {
    to.push_back({fmt::format("{}/kernel", layer.name), 2 * units * 4 * units, 0, layer.ready});
    to.push_back({fmt::format("{}/bias", layer.name), 4 * units, 0, layer.ready});
  };
  ModelGradients gradients = {{"embedding/encoder", words * units, units, 0.994}};
  for (const Layer& each : {Layer{"encoder/fw/lstm_0", 0.980}, Layer{"encoder/fw/lstm_1", 0.926},
                            Layer{"encoder/bw/lstm_0", 0.873}, Layer{"encoder/bw/lstm_1", 0.819}}) {
    add(gradients, each);
  }
  gradients.push_back({"embedding/decoder", words * units, units, 0.779});
  for (const Layer& each : {Layer{"decoder/lstm_0", 0.764}, Layer{"decoder/lstm_1", 0.710},
                            Layer{"decoder/lstm_2", 0.657}, Layer{"decoder/lstm_3", 0.607}}) {
    add(gradients, each);
  }
  gradients.push_back({"projection/kernel", words * units, 0, 0.566});
  return gradients;
}

ModelGradients equal_gradients(std::size_t count, std::uint64_t bytes) {
  const std::size_t elements = bytes / sizeof(float);
  ModelGradients gradients;
  for (std::size_t i = 0; i < count; ++i) {
    const double done = static_cast<double>(count - i) / static_cast<double>(count);
    gradients.push_back({fmt::format("parameter {}", i), elements / count + (i < elements % count ? 1 : 0), 0,
                         (1 + 2 * done) / 3});
  }
  return gradients;
}

ModelGradients read_gradients(const std::string& path) {
  ModelGradients gradients;
  std::istringstream lines(ddl::tools::read_text(path));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    try {
      gradients.push_back(parse_line(line));
    } catch (const std::exception& error) {
      throw ddl::Error(
          ddl::ErrorCode::corrupt_data,
          fmt::format("{}, line {}: {}; expected {{\"name\": \"w\", \"elements\": 4096, \"ready\": "
                      "0.5}} and perhaps \"row_width\"",
                      path, number, error.what()));
    }
  }
  if (!gradients.empty()) return gradients;
  throw ddl::Error(ddl::ErrorCode::corrupt_data, fmt::format("{}: found no lines, expected gradients", path));
}

void resize(ModelGradients& gradients, std::uint64_t bytes) {
  const double factor = static_cast<double>(bytes) / static_cast<double>(bytes_of(gradients));
  for (Gradient& gradient : gradients) {
    const std::size_t unit = std::max<std::size_t>(gradient.row_width, 1);
    const double units = std::round(factor * static_cast<double>(gradient.elements / unit));
    gradient.elements = unit * static_cast<std::size_t>(std::max(units, 1.0));
  }
}

std::uint64_t bytes_of(const ModelGradients& gradients) {
  std::uint64_t bytes = 0;
  for (const Gradient& gradient : gradients) bytes += sizeof(float) * gradient.elements;
  return bytes;
}

double touched_share(std::size_t rows, double lookups) {
  double sum = 0;
  for (std::size_t k = 1; k <= rows; ++k) sum += 1.0 / static_cast<double>(k);
  double touched = 0;
  for (std::size_t k = 1; k <= rows; ++k)
    touched -= std::expm1(lookups * std::log1p(-1 / (static_cast<double>(k) * sum)));
  return touched / static_cast<double>(rows);
}

}  // namespace scaling
