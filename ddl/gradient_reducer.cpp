#include "ddl/gradient_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "ddl/agreement.hpp"
#include "ddl/error.hpp"
#include "ddl/gradient_buckets.hpp"
#include "ddl/shared_buffer.hpp"
#include "ddl/work.hpp"

namespace ddl {
namespace {

Error invalid(const std::string& message) {
  return {ErrorCode::invalid_argument, "GradientReducer: " + message};
}

// In double, so that a mean of whole numbers that is whole comes out exact. Two functions, since one
// for both would be compiled for memory that may overlap, and not be vectorised.
void scale(std::span<float> values, double factor) noexcept {
  for (float& value : values) value = static_cast<float>(value * factor);
}
void scale_into(float* __restrict target, const float* __restrict source, std::size_t count,
                double factor) noexcept {
  for (std::size_t i = 0; i < count; ++i) target[i] = static_cast<float>(source[i] * factor);
}

void check_no_overlap(const std::vector<Gradient>& gradients) {
  std::vector<const Gradient*> order;
  for (const Gradient& gradient : gradients) {
    if (!gradient.values.empty()) order.push_back(&gradient);
  }
  const auto address = [](const Gradient* gradient) { return gradient->values.data(); };
  std::ranges::sort(order, std::less<const float*>(), address);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::span<float> previous = order[i - 1]->values;
    if (std::less<const float*>()(order[i]->values.data(), previous.data() + previous.size())) {
      throw invalid(
          fmt::format("gradients '{}' and '{}' overlap in memory, so one would be reduced twice; "
                      "register shared gradients once",
                      order[i - 1]->name, order[i]->name));
    }
  }
}

}  // namespace

struct GradientReducer::State {
  struct Bucket {
    GradientRange range;
    std::span<float> values;     // what is reduced: the gradients themselves or `packed`
    SharedBuffer<float> packed;  // empty if the gradients lie one after the other
    std::size_t missing = 0;     // gradients not ready in this step
    Work reduction = {};
  };

  State(Context& ctx, std::vector<Gradient> registered, GradientReducerOptions opts)
      : context(ctx), gradients(std::move(registered)), options(opts) {
    context.on_all_ranks("registering gradients", [&] { check(); });
    agree();
    make_buckets();
    end_step();
  }

  void check() const {
    if (options.gradients != GradientKind::sum && options.gradients != GradientKind::mean) {
      throw invalid("the kind of gradients is neither sum nor mean");
    }
    if (options.bucket_bytes == 0) throw invalid("bucket_bytes is 0; expected at least 1");
    check_no_overlap(gradients);
  }

  void agree() const {
    require_same_entries(
        context, "GradientReducer", "option",
        {is_mean() ? "means" : "sums", fmt::format("bucket_bytes {}", options.bucket_bytes)});
    std::vector<std::string> entries;
    for (const Gradient& gradient : gradients) {
      entries.push_back(fmt::format("'{}' of {} floats", gradient.name, gradient.values.size()));
    }
    require_same_entries(context, "GradientReducer", "gradient", entries);
  }

  void make_buckets() {
    std::vector<std::size_t> sizes;
    for (const Gradient& gradient : gradients) sizes.push_back(gradient.values.size_bytes());
    bucket_of.resize(gradients.size());
    is_ready.resize(gradients.size());
    for (const GradientRange range : bucket_ranges(sizes, options.bucket_bytes)) {
      Bucket bucket{.range = range, .values = {}, .packed = {}};
      std::size_t count = 0;
      bool contiguous = true;
      for (std::size_t i = range.first; i < range.end; ++i) {
        bucket_of[i] = buckets.size();
        contiguous = contiguous && gradients[range.first].values.data() + count == gradients[i].values.data();
        count += gradients[i].values.size();
      }
      if (!contiguous) bucket.packed = allocate<float>(context, count);
      bucket.values =
          contiguous ? std::span(gradients[range.first].values.data(), count) : bucket.packed.span();
      buckets.push_back(std::move(bucket));
      bytes += count * sizeof(float);
    }
  }

  [[nodiscard]] bool is_mean() const noexcept { return options.gradients == GradientKind::mean; }

  void mark_ready(std::size_t index) {
    if (index >= gradients.size()) {
      throw invalid(fmt::format("ready({}): there are only {} gradients", index, gradients.size()));
    }
    if (is_mean() && !begun) {
      throw invalid("ready() before begin(weight): gradient means need their weight before backward");
    }
    if (is_ready[index] != 0) {
      throw invalid(fmt::format("ready({}): gradient '{}' was made ready before in this step", index,
                                gradients[index].name));
    }
    is_ready[index] = 1;
    --buckets[bucket_of[index]].missing;
  }

  /// Packs a bucket whose gradients are all ready, and starts to reduce it.
  void launch(Bucket& bucket) {
    if (is_mean() && weight == 0) {
      std::ranges::fill(bucket.values, 0.0f);
    } else {
      const double factor = is_mean() ? weight : 1.0;
      if (bucket.packed.size() == 0) {
        if (factor != 1.0) scale(bucket.values, factor);
      } else {
        float* target = bucket.packed.data();
        for (std::size_t i = bucket.range.first; i < bucket.range.end; ++i) {
          const std::span<float> values = gradients[i].values;
          scale_into(target, values.data(), values.size(), factor);
          target += values.size();
        }
      }
    }
    if (bucket.values.empty()) return;
    if (buckets.size() == 1) return context.communicator().all_reduce(bucket.values);
    bucket.reduction = context.communicator().all_reduce_async(bucket.values);
  }

  /// Turns a bucket's sums over all ranks into means in the gradients.
  void finish(Bucket& bucket, double total) const {
    bucket.reduction.wait();
    const double factor = 1.0 / total;
    if (bucket.packed.size() == 0) return scale(bucket.values, factor);
    const float* source = bucket.packed.data();
    for (std::size_t i = bucket.range.first; i < bucket.range.end; ++i) {
      const std::span<float> values = gradients[i].values;
      scale_into(values.data(), source, values.size(), factor);
      source += values.size();
    }
  }

  [[nodiscard]] std::optional<Error> problem() const {
    if (!std::isfinite(weight) || weight < 0) {
      return invalid(fmt::format("the weight is {}; expected the number of items, 0 or more", weight));
    }
    const auto missing = std::ranges::find(is_ready, 0);
    if (missing != is_ready.end()) {
      const auto index = static_cast<std::size_t>(missing - is_ready.begin());
      return invalid(fmt::format("wait: gradient {} ('{}') was not made ready in this step", index,
                                 gradients[index].name));
    }
    return {};
  }

  /// The total weight. A NaN among the weights tells every rank that one of them has a problem.
  double agree_on_weight() {
    const std::optional<Error> mine = problem();
    double total = mine ? std::numeric_limits<double>::quiet_NaN() : weight;
    context.communicator().all_reduce(std::span(&total, 1), ReduceOp::sum);
    if (std::isfinite(total) && total > 0) return total;

    context.on_all_ranks("gradient reduction", [&] {
      if (mine) throw *mine;
    });
    throw invalid(total == 0
                      ? fmt::format("wait: the total weight of all {} ranks is 0: no rank had any item "
                                    "in this step; skip such steps on every rank",
                                    context.size())
                      : fmt::format("wait: the total weight of all {} ranks overflows", context.size()))
        .as_agreed();
  }

  double reduce() {
    const struct EndStep {
      State& state;
      ~EndStep() { state.end_step(); }
    } end_whatever_happens{*this};
    const double total = agree_on_weight();
    // Some are reduced while others are packed or scaled.
    constexpr std::size_t ahead = 3;
    for (std::size_t i = 0; i < buckets.size() + ahead; ++i) {
      if (i < buckets.size()) launch(buckets[i]);
      if (i >= ahead) finish(buckets[i - ahead], total);
    }
    return total;
  }

  void end_step() noexcept {
    begun = false;
    std::ranges::fill(is_ready, std::uint8_t{0});
    for (Bucket& bucket : buckets) bucket.missing = bucket.range.end - bucket.range.first;
  }

  Context& context;
  std::vector<Gradient> gradients;
  GradientReducerOptions options;
  std::vector<Bucket> buckets;
  std::vector<std::size_t> bucket_of;  // of each gradient
  std::vector<std::uint8_t> is_ready;
  std::size_t bytes = 0;
  bool begun = false;
  double weight = 0;
};

GradientReducer::GradientReducer(Context& context, std::vector<Gradient> gradients,
                                 GradientReducerOptions options)
    : state_(std::make_unique<State>(context, std::move(gradients), options)) {}

GradientReducer::~GradientReducer() = default;
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;

void GradientReducer::begin(double weight) {
  if (!state_->is_mean()) {
    throw invalid(
        "begin(weight) is for gradient means; this reducer was made for sums: give the weight to wait");
  }
  if (state_->begun) throw invalid("begin(weight) twice in a step; call wait() between");
  state_->begun = true;
  state_->weight = weight;
}

void GradientReducer::ready(std::size_t index) { state_->mark_ready(index); }

double GradientReducer::wait(double weight) {
  if (state_->is_mean()) {
    throw invalid(
        "wait(weight) is for gradient sums; this reducer was made for means: give the weight to "
        "begin, before backward, and call wait()");
  }
  state_->weight = weight;
  return state_->reduce();
}

double GradientReducer::wait() {
  if (!state_->is_mean()) {
    throw invalid(
        "wait() without a weight is for gradient means; this reducer was made for sums: call "
        "wait(weight)");
  }
  if (!state_->begun) throw invalid("wait() without begin(weight) before it in this step");
  return state_->reduce();
}

std::size_t GradientReducer::bytes() const noexcept { return state_->bytes; }
std::size_t GradientReducer::buckets() const noexcept { return state_->buckets.size(); }

}  // namespace ddl
