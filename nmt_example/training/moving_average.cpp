#include "nmt_example/training/moving_average.hpp"

namespace nmt {

MovingAverage::MovingAverage(Backend& backend, ParameterSet& parameters)
    : backend_(backend), parameters_(parameters), memory_(backend.allocate(bytes())) {}

std::size_t MovingAverage::bytes() const noexcept {
  return static_cast<std::size_t>(parameters_.layout().extent) * ddl::size_of(backend_.type());
}

Tensor MovingAverage::average() const {
  Tensor average = parameters_.values();
  average.data = memory_.get();
  return average;
}

void MovingAverage::restart() { backend_.copy(parameters_.values(), average()); }

void MovingAverage::update(const StepFactors* factors) {
  // Gradient descent on |parameters - average|^2 / 2, whose weight decay is the average's part.
  const UpdateSettings settings{.factors = factors, .weight_decay = 1};
  backend_.update(UpdateRule::sgd, {.values = average(), .gradients = parameters_.values(), .m = {}, .v = {}},
                  settings);
}

std::vector<NamedView> MovingAverage::values() const {
  std::vector<NamedView> views = values_of(parameters_);
  const auto* const first = static_cast<const std::byte*>(parameters_.values().data);
  for (NamedView& view : views) {
    view.tensor.data =
        static_cast<std::byte*>(memory_.get()) + (static_cast<const std::byte*>(view.tensor.data) - first);
  }
  return views;
}

MovingAverage::InModel::InModel(const MovingAverage& average)
    : average_(average), own_memory_(average.backend_.allocate(average.bytes())), own_(average.average()) {
  own_.data = own_memory_.get();
  average_.backend_.copy(average_.parameters_.values(), own_);
  average_.backend_.copy(average_.average(), average_.parameters_.values());
  average_.backend_.parameters_changed();
}

MovingAverage::InModel::~InModel() {
  average_.backend_.copy(own_, average_.parameters_.values());
  average_.backend_.parameters_changed();
}

}  // namespace nmt
