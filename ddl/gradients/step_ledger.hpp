#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ddl/gradients/buckets.hpp"
#include "ddl/shared_buffer.hpp"
#include "ddl/work.hpp"

namespace ddl {

/// Which gradients have been reported in a step, and in which order. A step has one or more micro-batches.
class StepLedger {
 public:
  explicit StepLedger(std::size_t gradients) : reports_(gradients), has_value_(gradients) {
    order_.reserve(gradients);
  }

  /// Records a report. Returns false, and changes nothing, if the gradient has been reported in this
  /// micro-batch.
  [[nodiscard]] bool report(std::size_t index, bool has_value) {
    if (reports_[index] != none) return false;
    reports_[index] = has_value ? value : absent;
    ++reported_;
    if (has_value) {
      has_value_[index] = 1;
      order_.push_back(index);
    }
    return true;
  }
  [[nodiscard]] bool is_complete() const noexcept { return reported_ == reports_.size(); }
  [[nodiscard]] bool is_empty() const noexcept { return reported_ == 0; }
  [[nodiscard]] bool is_reported(std::size_t index) const noexcept { return reports_[index] != none; }
  /// The first gradient that has not been reported in this micro-batch.
  [[nodiscard]] std::optional<std::size_t> missing() const noexcept {
    if (is_complete()) return {};
    return static_cast<std::size_t>(std::ranges::find(reports_, none) - reports_.begin());
  }
  /// The gradients with values in this micro-batch, in the order of their reports.
  [[nodiscard]] std::span<const std::size_t> order() const noexcept { return order_; }
  /// Whether the gradient has a value in this micro-batch.
  [[nodiscard]] bool has_value_now(std::size_t index) const noexcept { return reports_[index] == value; }
  /// Whether the gradient has a value in any micro-batch of this step so far.
  [[nodiscard]] bool has_value(std::size_t index) const noexcept { return has_value_[index] != 0; }
  /// `has_value` of all gradients, one byte each.
  [[nodiscard]] const std::vector<std::uint8_t>& values() const noexcept { return has_value_; }

  void next_micro_batch() noexcept {
    std::ranges::fill(reports_, none);
    order_.clear();
    reported_ = 0;
  }
  void next_step() noexcept {
    next_micro_batch();
    std::ranges::fill(has_value_, std::uint8_t{0});
  }

 private:
  enum Report : std::uint8_t { none, value, absent };

  std::vector<std::uint8_t> reports_;    // of this micro-batch
  std::vector<std::uint8_t> has_value_;  // in this step
  std::vector<std::size_t> order_;
  std::size_t reported_ = 0;
};

/// The rows of a gradient that a step has touched, on this rank and on any rank. Ranks exchange a map with
/// one byte per row.
class TouchedRows {
 public:
  /// Has 0 rows for a gradient without a `row_width`.
  TouchedRows(const Context& context, const Gradient& gradient)
      : width_(gradient.row_width),
        own_(allocate<std::uint8_t>(context, width_ > 0 ? gradient.values.size() / width_ : 0)),
        map_(allocate<std::uint8_t>(context, own_.size())) {
    all_.reserve(own_.size());
  }

  [[nodiscard]] std::size_t rows() const noexcept { return own_.size(); }
  void add(std::span<const std::int32_t> rows) noexcept {
    for (const std::int32_t row : rows) own_[static_cast<std::size_t>(row)] = 1;
  }
  void add_all() noexcept { std::ranges::fill(own_, std::uint8_t{1}); }
  void clear() noexcept { std::ranges::fill(own_, std::uint8_t{0}); }

  /// Starts the exchange of the maps, after which `set_all` knows the rows that any rank has touched.
  [[nodiscard]] Work exchange(Communicator& ranks) {
    return ranks.all_reduce_async(own_.data(), map_.data(), rows(), DataType::u8, ReduceOp::max);
  }
  void set_all() {
    all_.clear();
    for (std::size_t row = 0; row < rows(); ++row) {
      if (map_[row] != 0) all_.push_back(static_cast<std::uint32_t>(row));
    }
  }
  /// The rows that any rank touched, ascending.
  [[nodiscard]] std::span<const std::uint32_t> all() const noexcept { return all_; }
  /// The same rows as pieces of the gradient; adjacent rows form one piece.
  [[nodiscard]] std::vector<GradientPiece> pieces(std::size_t gradient) const {
    std::vector<GradientPiece> pieces;
    for (const std::uint32_t row : all_) {
      const std::size_t first = row * width_;
      const bool goes_on = !pieces.empty() && pieces.back().first + pieces.back().count == first;
      if (!goes_on) pieces.push_back({gradient, first, 0});
      pieces.back().count += width_;
    }
    return pieces;
  }
  /// Whether to reduce only the touched rows. Depends only on the exchanged map and the job, so that all
  /// ranks, and a repeated run, decide alike. On one host the copies cost more than reducing half of the
  /// bytes.
  [[nodiscard]] bool travel_alone(const Context& context) const {
    if (context.size() == 1) return false;
    const double share = static_cast<double>(all_.size()) / static_cast<double>(rows());
    return share <= (context.hosts() > 1 ? 0.9 : 0.5);
  }

 private:
  std::size_t width_;
  SharedBuffer<std::uint8_t> own_, map_;  // 1 for each row that this rank has touched, or any rank
  std::vector<std::uint32_t> all_;
};

}  // namespace ddl
