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

/// What was measured of one size, in place or out of place.
struct Measured {
  bool in_place = false;
  Times ours;
  std::optional<Times> baseline = {};
  std::optional<std::int64_t> wrong = {};
  std::optional<double> stolen = {};  ///< As StolenTime's, while it was measured.
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

/// Writes nccl-tests' table on standard output, and JSON lines if asked for. On rank 0 alone.
class Report {
 public:
  /// Writes the head. Throws `io` if the JSON file cannot be written.
  Report(const Settings& settings, ddl::Context& context);

  void add(const Row& row);
  /// The lines at the end.
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
