#include "ddl/gradients/wire_reduction.hpp"

#include <algorithm>
#include <utility>

#include "ddl/gradients/elementwise.hpp"

namespace ddl {
namespace {

class WireReduction : public BucketReduction {
 public:
  WireReduction(Communicator& all, HostHierarchy& hierarchy, DataType wire, std::span<float> values,
                WireResidual& residual, StageOrder& order, std::size_t ordinal,
                std::shared_ptr<WorkEvents> events)
      : all_(all),
        hierarchy_(hierarchy),
        wire_(wire),
        values_(values),
        residual_(residual),
        order_(order),
        ordinal_(ordinal),
        events_(std::move(events)),
        sent_(residual.kept().size()) {}

  void start() override {
    stage_ = Stage::sums;
    sum_on_host();
  }

  bool advance() override {
    while (stage_ != Stage::done) {
      if (!is_over()) return false;
      const auto next = static_cast<Stage>(static_cast<std::size_t>(stage_) + 1);
      if (!order_.is_turn(static_cast<std::size_t>(next), ordinal_)) return false;
      order_.entered(static_cast<std::size_t>(next));
      stage_ = next;
      enter();
    }
    return true;
  }

  void wait() override {
    for (Work& work : works_) work.wait();
  }

  void finish(double factor, GradientNorm& norm) override {
    finish_slice(values_, all_.rank(), all_.size(), factor, norm);
  }
  void settle(bool finite) override { residual_.settle(finite); }
  [[nodiscard]] std::uint64_t bytes() const noexcept override {
    return values_.size() * sizeof(std::uint16_t);
  }
  [[nodiscard]] std::string plans() const override {
    using topology::Collective;
    const std::size_t shard = values_.size() / static_cast<std::size_t>(hierarchy_.shards);
    const std::string across =
        hierarchy_.has_shard() ? plan_text(hierarchy_.across, Collective::all_reduce, shard, wire_) : "";
    return (hierarchy_.even
                ? plan_text(hierarchy_.sums, Collective::reduce_scatter, values_.size(), DataType::f32)
                : plan_text(hierarchy_.sums, Collective::reduce, shard, DataType::f32)) +
           " " + across;
  }

 private:
  enum class Stage : std::size_t { sums, across, results, done };

  void enter() {
    if (stage_ == Stage::across) sum_over_hosts();
    if (stage_ == Stage::results) share_on_host();
    if (stage_ == Stage::done) works_.clear();
  }

  [[nodiscard]] bool is_over() {
    return std::ranges::all_of(works_, [](Work& work) { return work.test(); });
  }

  [[nodiscard]] std::span<float> shard(int index) const {
    const std::size_t count = values_.size() / static_cast<std::size_t>(hierarchy_.shards);
    return values_.subspan(static_cast<std::size_t>(index) * count, count);
  }

  void sum_on_host() {
    works_.clear();
    Communicator& host = hierarchy_.sums;
    if (host.size() == 1) return events_->signal();
    if (hierarchy_.even) {
      const std::span<float> own = shard(host.rank());
      return follow(
          host.reduce_scatter_async(values_.data(), own.data(), own.size(), DataType::f32, ReduceOp::sum));
    }
    for (int s = 0; s < hierarchy_.shards; ++s) {
      const std::span<float> part = shard(s);
      follow(host.reduce_async(part.data(), part.data(), part.size(), DataType::f32, ReduceOp::sum, s));
    }
  }

  void sum_over_hosts() {
    works_.clear();
    if (!hierarchy_.has_shard()) return;
    elementwise::encode(wire_, shard(hierarchy_.index()), residual_.kept(), sent_, residual_.next());
    follow(
        hierarchy_.across.all_reduce_async(sent_.data(), sent_.data(), sent_.size(), wire_, ReduceOp::sum));
  }

  void share_on_host() {
    works_.clear();
    if (hierarchy_.has_shard()) elementwise::decode(wire_, sent_, shard(hierarchy_.index()));
    Communicator& host = hierarchy_.results;
    if (host.size() == 1) return;
    if (hierarchy_.even) {
      const std::span<float> own = shard(host.rank());
      return follow(host.all_gather_async(own.data(), values_.data(), own.size(), DataType::f32));
    }
    for (int s = 0; s < hierarchy_.shards; ++s) {
      const std::span<float> part = shard(s);
      follow(host.broadcast_async(part.data(), part.data(), part.size(), DataType::f32, s));
    }
  }

  void follow(Work work) {
    work.then([events = events_](const Error*) { events->signal(); });
    works_.push_back(std::move(work));
  }

  Communicator& all_;
  HostHierarchy& hierarchy_;
  DataType wire_;
  std::span<float> values_;
  WireResidual& residual_;
  StageOrder& order_;
  std::size_t ordinal_;
  std::shared_ptr<WorkEvents> events_;
  std::vector<std::uint16_t> sent_;  // this rank's shard in 16 bits
  Stage stage_ = Stage::done;
  std::vector<Work> works_;
};

}  // namespace

std::unique_ptr<BucketReduction> wire_reduction(Communicator& all, HostHierarchy& hierarchy, DataType wire,
                                                std::span<float> values, WireResidual& residual,
                                                StageOrder& order, std::size_t ordinal,
                                                std::shared_ptr<WorkEvents> events) {
  return std::make_unique<WireReduction>(all, hierarchy, wire, values, residual, order, ordinal,
                                         std::move(events));
}

}  // namespace ddl
