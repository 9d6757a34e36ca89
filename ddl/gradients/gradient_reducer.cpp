#include "ddl/gradient_reducer.hpp"

#include <fmt/format.h>

#include <utility>

#include "ddl/gradients/host_queue.hpp"
#include "ddl/gradients/reducer.hpp"

namespace ddl {

GradientReducer::GradientReducer(const Context& context, std::vector<Gradient> gradients,
                                 GradientReducerOptions options)
    : state_(std::make_unique<State>(context, std::move(gradients), options,
                                     std::make_unique<HostQueue>(context))) {}

std::vector<Gradient> gradients_of(const Model& model) {
  std::vector<Gradient> gradients;
  for (const auto& [name, values, gradient, row_width, summands, shape] : model) {
    if (gradient.data() == nullptr) continue;
    if (gradient.size() != values.size()) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("gradients_of: parameter '{}' has {} elements and a gradient of {}, expected as "
                      "many",
                      name, values.size(), gradient.size()));
    }
    gradients.push_back({name, gradient, row_width, summands});
  }
  return gradients;
}

GradientReducer::~GradientReducer() = default;
GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;

void GradientReducer::begin(double weight) { state_->begin(weight); }
void GradientReducer::ready(std::size_t index, std::span<const std::int32_t> rows, DeviceStream stream) {
  state_->report("ready", index, true, rows, stream);
}
void GradientReducer::absent(std::size_t index) { state_->report("absent", index, false, {}, nullptr); }

ReducedStep GradientReducer::State::wait(const GivenWeight& weight) {
  const ReducedStep step = end("wait", weight, nullptr);
  return queue->is_on_device() && !no_sync ? result() : step;
}
ReducedStep GradientReducer::wait(double weight) { return state_->wait(GivenWeight(weight)); }
ReducedStep GradientReducer::wait() { return state_->wait({}); }

void GradientReducer::State::require_device(const char* name) const {
  if (queue->is_on_device()) return;
  throw invalid("{} is for gradients on devices; these are in the host's memory: call {}", names.call(name),
                names.call("wait"));
}
void GradientReducer::finish(double weight, DeviceStream stream) {
  state_->require_device("finish");
  state_->end("finish", GivenWeight(weight), stream);
}
void GradientReducer::finish(const DeviceWeight& weight, DeviceStream stream) {
  state_->require_device("finish");
  if (weight.items == nullptr)
    throw State::invalid("finish(DeviceWeight): found a null pointer, expected device memory");
  state_->end("finish", GivenWeight(weight), stream);
}
void GradientReducer::finish(DeviceStream stream) {
  state_->require_device("finish");
  state_->end("finish", {}, stream);
}
bool GradientReducer::can_be_captured() const { return state_->can_be_captured(); }
const DeviceOutcome* GradientReducer::outcome() const noexcept { return state_->queue->outcome(); }
ReducedStep GradientReducer::result() {
  state_->require_device("result");
  return state_->result();
}
ReducedStep GradientReducer::result(DeviceStream stream) {
  state_->require_device("result");
  return state_->result(stream);
}

GradientReducer::NoSync::NoSync(bool& scope) noexcept : scope_(scope) { scope_ = true; }
GradientReducer::NoSync::~NoSync() { scope_ = false; }
GradientReducer::NoSync GradientReducer::no_sync() {
  if (state_->no_sync) throw State::invalid("no_sync() within no_sync()");
  return NoSync(state_->no_sync);
}

bool GradientReducer::has_gradient(std::size_t index) const { return state_->has_gradient(index); }
std::span<const std::uint32_t> GradientReducer::touched_rows(std::size_t index) const {
  state_->require_index("touched_rows", index);
  return state_->touched[index].all();
}

std::span<const GradientPiece> GradientReducer::shards() const { return state_->shards; }
void GradientReducer::gather(const std::vector<Parameter>& parameters, DeviceStream stream) {
  state_->gather(parameters, stream);
}

std::string GradientReducer::state() const { return state_->state(); }
void GradientReducer::restore(std::string_view state) { state_->restore(state); }
std::vector<NamedTensor> GradientReducer::residuals() { return state_->queue->residuals(); }

void GradientReducer::rebind(std::vector<Gradient> gradients) { state_->rebind(std::move(gradients)); }

std::size_t GradientReducer::bytes() const noexcept { return state_->bytes; }
std::size_t GradientReducer::packed_bytes() const noexcept { return state_->queue->packed_bytes(); }
std::size_t GradientReducer::buckets() const noexcept { return state_->buckets.size(); }
std::optional<double> GradientReducer::hidden_share() const noexcept { return state_->hidden_share(); }
std::size_t GradientReducer::largest_bucket() const noexcept { return state_->largest_bucket(); }

}  // namespace ddl
