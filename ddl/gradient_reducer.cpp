#include "ddl/gradient_reducer.hpp"

#include <utility>

#include "ddl/gradients/reducer_impl.hpp"

namespace ddl {

GradientReducer::GradientReducer(Context& context, std::vector<Gradient> gradients,
                                 GradientReducerOptions options)
    : state_(std::make_unique<State>(context, std::move(gradients), options)) {}

GradientReducer::~GradientReducer() = default;
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;

void GradientReducer::begin(double weight) { state_->begin(weight); }

void GradientReducer::ready(std::size_t index) { state_->report("ready", index, true, {}); }
void GradientReducer::ready(std::size_t index, std::span<const std::int32_t> rows) {
  state_->report("ready", index, true, rows);
}
void GradientReducer::absent(std::size_t index) { state_->report("absent", index, false, {}); }

ReducedStep GradientReducer::wait(double weight) {
  if (state_->is_mean()) {
    throw State::invalid(
        "wait(weight) is for gradient sums; this reducer was made for means: give the weight to "
        "begin, before backward, and call wait()");
  }
  if (state_->begun)
    throw State::invalid("wait(weight) after begin(weight): the step has its weight; call wait()");
  return state_->end(weight);
}

ReducedStep GradientReducer::wait() {
  if (!state_->begun) {
    throw State::invalid(state_->is_mean() ? "wait() without begin(weight) before it in this step"
                                           : "wait() without a weight: this reducer was made for sums; call "
                                             "wait(weight), or begin(weight) before backward");
  }
  return state_->end(state_->weight);
}

GradientReducer::NoSync::NoSync(bool& scope) noexcept : scope_(scope) { scope_ = true; }
GradientReducer::NoSync::~NoSync() { scope_ = false; }
GradientReducer::NoSync GradientReducer::no_sync() {
  if (state_->no_sync) throw State::invalid("no_sync() within no_sync()");
  return NoSync(state_->no_sync);
}

bool GradientReducer::has_gradient(std::size_t index) const {
  state_->require_index("has_gradient", index);
  return !state_->values_somewhere.empty() && state_->values_somewhere[index] != 0;
}

std::span<const std::uint32_t> GradientReducer::touched_rows(std::size_t index) const {
  state_->require_index("touched_rows", index);
  return state_->touched[index].all();
}

std::span<const GradientShard> GradientReducer::shards() const { return state_->shards; }
void GradientReducer::gather(const std::vector<Parameter>& parameters) { state_->gather(parameters); }

std::string GradientReducer::state() const { return state_->state(); }
void GradientReducer::restore(std::string_view state) { state_->restore(state); }
std::vector<NamedTensor> GradientReducer::residuals() { return state_->buckets->residuals(); }

std::size_t GradientReducer::bytes() const noexcept { return state_->bytes; }
std::size_t GradientReducer::buckets() const noexcept { return state_->buckets->size(); }
std::size_t GradientReducer::largest_bucket() const noexcept {
  return state_->buckets->largest() * sizeof(float);
}

}  // namespace ddl
