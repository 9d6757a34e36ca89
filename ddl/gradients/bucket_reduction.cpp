#include "ddl/gradients/bucket_reduction.hpp"

#include <fmt/format.h>

#include <utility>

#include "ddl/gradients/elementwise.hpp"

namespace ddl {
namespace {

/// One collective, done in place.
class OneCollective : public BucketReduction {
 public:
  OneCollective(Communicator& all, std::span<float> values, std::shared_ptr<WorkEvents> events)
      : all_(all), values_(values), events_(std::move(events)) {}

  bool advance() override { return work_.test(); }
  void wait() override { work_.wait(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept override { return values_.size_bytes(); }

 protected:
  [[nodiscard]] std::span<float> own() const noexcept { return slice_of(values_, all_.rank(), all_.size()); }
  void follow(Work work) {
    work_ = std::move(work);
    if (events_) work_.then([events = events_](const Error*) { events->signal(); });
  }

  Communicator& all_;
  std::span<float> values_;

 private:
  std::shared_ptr<WorkEvents> events_;
  Work work_;
};

class DenseReduction : public OneCollective {
 public:
  DenseReduction(Communicator& all, std::span<float> values, bool blocking,
                 std::shared_ptr<WorkEvents> events)
      : OneCollective(all, values, std::move(events)), blocking_(blocking) {}

  void start() override {
    if (all_.size() == 1) return;  // the values are the sums
    if (blocking_) return all_.all_reduce(values_);
    follow(all_.all_reduce_async(values_));
  }
  void finish(double factor, GradientNorm& norm) override {
    finish_slice(values_, all_.rank(), all_.size(), factor, norm);
  }
  [[nodiscard]] std::string plans() const override {
    return plan_text(all_, topology::Collective::all_reduce, values_.size(), DataType::f32);
  }

 private:
  bool blocking_;
};

class ShardedReduction : public OneCollective {
 public:
  using OneCollective::OneCollective;

  void start() override {
    follow(
        all_.reduce_scatter_async(values_.data(), own().data(), own().size(), DataType::f32, ReduceOp::sum));
  }
  void finish(double factor, GradientNorm& norm) override { norm.add_and_scale(own(), factor); }
  [[nodiscard]] std::string plans() const override {
    return plan_text(all_, topology::Collective::reduce_scatter, values_.size(), DataType::f32);
  }
};

}  // namespace

void WorkEvents::signal() {
  const std::lock_guard lock(mutex_);
  ++count_;
  changed_.notify_all();
}

std::uint64_t WorkEvents::seen() {
  const std::lock_guard lock(mutex_);
  return count_;
}

void WorkEvents::wait_beyond(std::uint64_t seen) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return count_ > seen; });
}

std::string plan_text(const Communicator& communicator, topology::Collective collective, std::size_t count,
                      DataType type) {
  if (communicator.size() == 1 || count == 0) return {};
  return fmt::format("{:016x}", topology::hash(communicator.plan(collective, count * size_of(type), type)));
}

std::span<float> slice_of(std::span<float> values, int rank, int ranks) noexcept {
  const auto n = static_cast<std::size_t>(ranks);
  const auto r = static_cast<std::size_t>(rank);
  const std::size_t whole = values.size() / n;
  const std::size_t longer = values.size() % n;  // the first ones have one more
  const std::size_t first = r * whole + (r < longer ? r : longer);
  return values.subspan(first, whole + (r < longer ? 1 : 0));
}

void finish_slice(std::span<float> values, int rank, int ranks, double factor, GradientNorm& norm) noexcept {
  const std::span<float> own = slice_of(values, rank, ranks);
  norm.add_and_scale(own, factor);
  if (factor == 1) return;
  const auto before = static_cast<std::size_t>(own.data() - values.data());
  elementwise::scale(values.first(before), factor);
  elementwise::scale(values.subspan(before + own.size()), factor);
}

std::unique_ptr<BucketReduction> dense_reduction(Communicator& all, std::span<float> values, bool blocking,
                                                 std::shared_ptr<WorkEvents> events) {
  return std::make_unique<DenseReduction>(all, values, blocking, std::move(events));
}

std::unique_ptr<BucketReduction> sharded_reduction(Communicator& all, std::span<float> values,
                                                   std::shared_ptr<WorkEvents> events) {
  return std::make_unique<ShardedReduction>(all, values, std::move(events));
}

}  // namespace ddl
