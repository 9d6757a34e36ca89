#include "nmt_example/training/optimizer.hpp"

#include <algorithm>
#include <tuple>

namespace nmt {

Optimizer::Optimizer(Backend& backend, ParameterSet& parameters, const Options& options)
    : backend_(backend),
      parameters_(parameters),
      settings_{0, options.adam_beta1, options.adam_beta2, options.adam_epsilon, 0},
      adam_(options.optimizer == OptimizerKind::adam) {
  if (options.sharded_update) return;
  std::vector<ddl::GradientPiece> all;
  for (std::size_t i = 0; i < parameters.count(); ++i) {
    all.push_back({i, 0, static_cast<std::size_t>(parameters.layout().parameters[i].size())});
  }
  take(all);
}

void Optimizer::take(std::span<const ddl::GradientPiece> shards) {
  shards_.assign(shards.begin(), shards.end());
  std::ranges::sort(shards_, {}, [](const auto& shard) { return std::tuple(shard.gradient, shard.first); });
  stretches_ = joined();
  std::int64_t elements = 0;
  for (const Stretch& stretch : stretches_) elements += stretch.count;
  whole_ = elements == parameters_.layout().size;
  if (!adam_) return;
  const std::size_t bytes = static_cast<std::size_t>(elements) * ddl::size_of(backend_.type());
  m_ = backend_.allocate(bytes);
  v_ = backend_.allocate(bytes);
}

std::vector<Optimizer::Stretch> Optimizer::joined() const {
  std::vector<Stretch> stretches;
  std::int64_t moment = 0;
  for (const ddl::GradientPiece& shard : shards_) {
    const auto count = static_cast<std::int64_t>(shard.count);
    const std::int64_t first =
        parameters_.layout().parameters[shard.gradient].offset + static_cast<std::int64_t>(shard.first);
    if (!stretches.empty() && stretches.back().first + stretches.back().count == first) {
      stretches.back().count += count;
    } else {
      stretches.push_back({first, count, moment});
    }
    moment += count;
  }
  return stretches;
}

Tensor Optimizer::moment(void* block, std::int64_t first, std::int64_t count) const {
  const Tensor values = parameters_.values();
  return Tensor{block, 1, first + count, first + count, values.type}.col_range(first, count);
}

void Optimizer::update(std::int64_t step, double gradient_scale, double learning_rate) {
  settings_.learning_rate = learning_rate;
  settings_.step = step;
  for (const Stretch& stretch : stretches_) {
    const Tensor values = parameters_.values().col_range(stretch.first, stretch.count);
    const Tensor gradients = parameters_.gradients().col_range(stretch.first, stretch.count);
    if (!adam_) {
      backend_.sgd(values, gradients, gradient_scale, learning_rate);
      continue;
    }
    backend_.adam(values, gradients, moment(m_.get(), stretch.moment, stretch.count),
                  moment(v_.get(), stretch.moment, stretch.count), gradient_scale, settings_);
  }
  backend_.parameters_changed();
}

std::vector<Optimizer::State> Optimizer::state() const {
  std::vector<State> states;
  if (!adam_) return states;
  for (const auto& [prefix, block] : {std::pair{"m/", m_.get()}, std::pair{"v/", v_.get()}}) {
    std::int64_t at = 0;
    for (const ddl::GradientPiece& shard : shards_) {
      const ParameterSpec& parameter = parameters_.layout().parameters[shard.gradient];
      const auto count = static_cast<std::int64_t>(shard.count);
      states.push_back({prefix + parameter.name, parameter.rows, parameter.cols,
                        static_cast<std::int64_t>(shard.first), moment(block, at, count)});
      at += count;
    }
  }
  return states;
}

}  // namespace nmt
