#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "perf/call.hpp"
#include "perf/prediction.hpp"
#include "perf/settings.hpp"
#include "perf/stopwatch.hpp"

namespace perf {

/// The measurement of one size, in place or out of place.
struct Measured {
  bool in_place = false;
  Times ours;
  std::optional<Times> baseline = {};
  std::optional<std::int64_t> wrong = {};
  std::optional<double> stolen = {};  ///< Stolen time during the measurement; see StolenTime.
};

/// One row of the table.
struct Row {
  std::size_t bytes = 0;
  std::size_t count = 0;
  ddl::DataType type = ddl::DataType::f32;
  std::optional<ddl::ReduceOp> op = {};
  std::optional<int> root = {};
  int calls = 1;
  std::optional<ddl::topology::Plan> plan = {};
  std::optional<Prediction> prediction = {};
  std::vector<Measured> places = {};
};

/// Writes the table of nccl-tests to standard output and, on request, JSON lines. For rank 0.
class Report {
 public:
  /// Writes the header. Throws `io` if the JSON file cannot be written.
  Report(const Settings& settings, ddl::Context& context);

  void add(const Row& row);
  /// Writes the final lines.
  void close();
  [[nodiscard]] std::int64_t wrong() const noexcept { return wrong_; }

 private:
  void write_json(const Row& row, const Measured& measured);

  const Settings& settings_;
  int ranks_;
  const ddl::topology::RankMap& map_;
  std::ofstream json_;
  std::int64_t wrong_ = 0;
  double most_stolen_ = 0;
  std::size_t most_stolen_bytes_ = 0;
  int repeated_ = 0;
  double bus_sum_ = 0;
  int bus_terms_ = 0;
};

}  // namespace perf
