#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/gradients/bucket_reduction.hpp"

namespace ddl {

/// Which rows of a gradient a step has touched.
class TouchedRows {
 public:
  explicit TouchedRows(std::size_t rows) : own_(rows) { all_.reserve(rows); }

  [[nodiscard]] std::size_t rows() const noexcept { return own_.size(); }
  /// On this rank.
  void add(std::span<const std::int32_t> rows) noexcept;
  void add_all() noexcept;
  void clear() noexcept;
  /// 1 for each that was touched on this rank.
  [[nodiscard]] std::span<const std::uint8_t> own() const noexcept { return own_; }

  /// `map`: 1 for each that was touched on any rank.
  void set_all(std::span<const std::uint8_t> map);
  /// On any rank, ascending.
  [[nodiscard]] std::span<const std::uint32_t> all() const noexcept { return all_; }

 private:
  std::vector<std::uint8_t> own_;
  std::vector<std::uint32_t> all_;
};

/// Sums of a gradient of which most rows are zero on all ranks: ranks tell one another which rows they have
/// touched, a byte a row, and reduce those alone, one after the other in memory of the reduction's own, if
/// that is less; else all rows where they are. Between hosts less is 90% of the bytes, on one host half, for
/// the copying. `values` are rows of `width` each; those that are not touched hold zeros.
std::unique_ptr<BucketReduction> rows_reduction(Context& context, Communicator& rows, std::span<float> values,
                                                std::size_t width, TouchedRows& touched, StageOrder& order,
                                                std::size_t ordinal, std::shared_ptr<WorkEvents> events);

}  // namespace ddl
