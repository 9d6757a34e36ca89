#include "nmt_example/training/optimizer.hpp"

namespace nmt {

Optimizer::Optimizer(Backend& backend, ParameterSet& parameters, const Options& options)
    : backend_(backend),
      parameters_(parameters),
      settings_{0, options.adam_beta1, options.adam_beta2, options.adam_epsilon, 0} {
  if (options.optimizer != "adam") return;
  const auto bytes = static_cast<std::size_t>(parameters.layout().size) * ddl::size_of(backend.type());
  m_ = backend.allocate(bytes);
  v_ = backend.allocate(bytes);
}

Tensor Optimizer::flat(void* data) const {
  const Tensor values = parameters_.values();
  return {data, values.rows, values.cols, values.stride, values.type};
}

void Optimizer::update(std::int64_t step, double gradient_scale, double learning_rate) {
  if (!adam()) {
    backend_.sgd(parameters_.values(), parameters_.gradients(), gradient_scale, learning_rate);
    return;
  }
  settings_.learning_rate = learning_rate;
  settings_.step = step;
  backend_.adam(parameters_.values(), parameters_.gradients(), flat(m_.get()), flat(v_.get()), gradient_scale,
                settings_);
}

std::vector<Optimizer::State> Optimizer::state() const {
  std::vector<State> states;
  if (!adam()) return states;
  for (const auto& [prefix, block] : {std::pair{"m/", m_.get()}, std::pair{"v/", v_.get()}}) {
    for (const ParameterSpec& parameter : parameters_.layout().parameters) {
      states.push_back({prefix + parameter.name, flat(block)
                                                     .col_range(parameter.offset, parameter.size())
                                                     .reshaped(parameter.rows, parameter.cols)});
    }
  }
  return states;
}

}  // namespace nmt
