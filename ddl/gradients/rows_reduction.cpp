#include "ddl/gradients/rows_reduction.hpp"

#include <algorithm>
#include <utility>

#include "ddl/gradients/elementwise.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl {
namespace {

class RowsReduction : public BucketReduction {
 public:
  RowsReduction(Context& context, Communicator& rows, std::span<float> values, std::size_t width,
                TouchedRows& touched, StageOrder& order, std::size_t ordinal,
                std::shared_ptr<WorkEvents> events)
      : context_(context),
        rows_(rows),
        values_(values),
        width_(width),
        touched_(touched),
        order_(order),
        ordinal_(ordinal),
        events_(std::move(events)),
        map_(allocate<std::uint8_t>(context, touched.rows())) {}

  void start() override {
    std::ranges::copy(touched_.own(), map_.begin());
    stage_ = Stage::map;
    follow(context_.communicator().all_reduce_async(map_.span(), ReduceOp::max));
  }

  bool advance() override {
    if (stage_ == Stage::done) return true;
    if (!work_.test()) return false;
    if (stage_ == Stage::map) {
      if (!order_.is_turn(1, ordinal_)) return false;
      order_.entered(1);
      touched_.set_all(map_.span());
      stage_ = Stage::values;
      exchange_values();
      if (!work_.test()) return false;
    }
    stage_ = Stage::done;
    return true;
  }

  void wait() override { work_.wait(); }

  // Rows that nobody touched are zeros, wherever they were reduced.
  void finish(double factor, GradientNorm& norm) override {
    const std::span<const std::uint32_t> all = touched_.all();
    const auto sums = [&](std::size_t i) { return alone_ ? packed(i) : row(all[i]); };
    const std::size_t first = all.size() * rank() / ranks();
    const std::size_t end = all.size() * (rank() + 1) / ranks();
    for (std::size_t i = first; i < end; ++i) norm.add(sums(i));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (alone_) {
        elementwise::scale_into(row(all[i]), packed(i), factor);
      } else if (factor != 1) {
        elementwise::scale(row(all[i]), factor);
      }
    }
  }

  [[nodiscard]] std::uint64_t bytes() const noexcept override {
    return map_.size() + (alone_ ? touched_.all().size() * width_ * sizeof(float) : values_.size_bytes());
  }

  /// Of all rows; fewer ones may take the plan of a smaller size.
  [[nodiscard]] std::string plans() const override {
    return plan_text(rows_, topology::Collective::all_reduce, values_.size(), DataType::f32);
  }

 private:
  enum class Stage : std::size_t { map, values, done };

  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(rows_.rank()); }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(rows_.size()); }
  [[nodiscard]] std::span<float> row(std::size_t index) const {
    return values_.subspan(index * width_, width_);
  }
  [[nodiscard]] std::span<float> packed(std::size_t index) const {
    return packed_.span().subspan(index * width_, width_);
  }

  /// A function of the map and the hosts alone: a run that is repeated decides alike.
  [[nodiscard]] bool is_worth_packing() const {
    if (ranks() == 1) return false;
    const double share = static_cast<double>(touched_.all().size()) / static_cast<double>(touched_.rows());
    return share <= (context_.hosts() > 1 ? 0.9 : 0.5);
  }

  void exchange_values() {
    alone_ = is_worth_packing();
    work_ = Work();
    if (!alone_) return follow(rows_.all_reduce_async(values_));
    const std::span<const std::uint32_t> all = touched_.all();
    if (all.empty()) return;
    const std::size_t count = all.size() * width_;
    if (packed_.size() < count) packed_ = allocate<float>(context_, count + count / 4);
    for (std::size_t i = 0; i < all.size(); ++i) std::ranges::copy(row(all[i]), packed(i).begin());
    follow(rows_.all_reduce_async(packed_.span().first(count)));
  }

  void follow(Work work) {
    work_ = std::move(work);
    work_.then([events = events_](const Error*) { events->signal(); });
  }

  Context& context_;
  Communicator& rows_;
  std::span<float> values_;
  std::size_t width_;
  TouchedRows& touched_;
  StageOrder& order_;
  std::size_t ordinal_;
  std::shared_ptr<WorkEvents> events_;
  SharedBuffer<std::uint8_t> map_;
  SharedBuffer<float> packed_;
  bool alone_ = false;  // the touched rows travel without the others
  Stage stage_ = Stage::done;
  Work work_;
};

}  // namespace

void TouchedRows::add(std::span<const std::int32_t> rows) noexcept {
  for (const std::int32_t row : rows) own_[static_cast<std::size_t>(row)] = 1;
}
void TouchedRows::add_all() noexcept { std::ranges::fill(own_, std::uint8_t{1}); }
void TouchedRows::clear() noexcept { std::ranges::fill(own_, std::uint8_t{0}); }

void TouchedRows::set_all(std::span<const std::uint8_t> map) {
  all_.clear();
  for (std::size_t row = 0; row < map.size(); ++row) {
    if (map[row] != 0) all_.push_back(static_cast<std::uint32_t>(row));
  }
}

std::unique_ptr<BucketReduction> rows_reduction(Context& context, Communicator& rows, std::span<float> values,
                                                std::size_t width, TouchedRows& touched, StageOrder& order,
                                                std::size_t ordinal, std::shared_ptr<WorkEvents> events) {
  return std::make_unique<RowsReduction>(context, rows, values, width, touched, order, ordinal,
                                         std::move(events));
}

}  // namespace ddl
