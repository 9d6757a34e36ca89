#include "nmt_example/training/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace nmt {
namespace {

UpdateSettings settings_from(const Options& options) {
  UpdateSettings settings;
  settings.weight_decay = options.weight_decay;
  settings.beta1 = options.optimizer == OptimizerKind::momentum ? options.momentum : options.adam_beta1;
  settings.beta2 = options.adam_beta2;
  settings.epsilon = options.adam_epsilon;
  return settings;
}

}  // namespace

Optimizer::Recipe Optimizer::recipe_of(const Options& options) {
  const std::optional<UpdateRule> larc =
      options.larc_eta > 0 ? std::optional(UpdateRule::norms) : std::nullopt;
  switch (options.optimizer) {
    case OptimizerKind::sgd:
      return {.rule = UpdateRule::sgd, .measure = larc, .layer = LayerRule::larc};
    case OptimizerKind::momentum:
      return {.rule = options.nesterov ? UpdateRule::nesterov : UpdateRule::momentum,
              .m = true,
              .measure = larc,
              .layer = LayerRule::larc};
    case OptimizerKind::novograd:
      return {.rule = UpdateRule::momentum,
              .m = true,
              .measure = UpdateRule::norms,
              .layer = LayerRule::novograd};
    case OptimizerKind::lamb:
      return {.rule = UpdateRule::lamb_step,
              .m = true,
              .v = true,
              .measure = UpdateRule::lamb_moments,
              .layer = LayerRule::lamb};
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      break;
  }
  return {.rule = UpdateRule::adam, .m = true, .v = true};
}

std::size_t Optimizer::moments(const Options& options) {
  const Recipe recipe = recipe_of(options);
  return (recipe.m ? 1 : 0) + (recipe.v ? 1 : 0);
}

Optimizer::Optimizer(Backend& backend, ParameterSet& parameters, const Options& options)
    : backend_(backend),
      parameters_(parameters),
      recipe_(recipe_of(options)),
      settings_(settings_from(options)),
      scaling_{recipe_.layer, settings_.weight_decay, settings_.beta2, settings_.epsilon, options.larc_eta},
      of_all_ranks_(parameters.count()) {
  if (options.sharded_update) return;
  std::vector<ddl::GradientPiece> all;
  for (std::size_t i = 0; i < parameters.count(); ++i) {
    all.push_back({i, 0, static_cast<std::size_t>(parameters.layout().parameters[i].size())});
  }
  take_pieces(all);
}

void Optimizer::take(std::span<const ddl::GradientPiece> shards, SumOverRanks sum_over_ranks) {
  sum_over_ranks_ = std::move(sum_over_ranks);
  const std::size_t parameters = parameters_.count();
  std::vector<double> counts(parameters + 1);
  const auto width = static_cast<std::int64_t>(counts.size());
  const std::shared_ptr<void> memory = backend_.allocate(counts.size() * sizeof(double));
  const Tensor sums(memory.get(), 1, width, width, ddl::DataType::f64);
  for (const ddl::GradientPiece& shard : shards) counts[shard.gradient] += static_cast<double>(shard.count);
  counts[parameters] = 1;
  backend_.upload_bytes(sums.data, std::as_bytes(std::span(counts)));
  sum_over_ranks_(sums);
  backend_.download(sums, std::span(counts));
  ranks_ = counts[parameters];
  for (std::size_t i = 0; i < parameters; ++i) {
    const double more = counts[i] - static_cast<double>(parameters_.layout().parameters[i].size());
    of_all_ranks_[i] = ranks_ > 1 ? static_cast<std::int64_t>(more / (ranks_ - 1)) : 0;
  }
  take_pieces(shards);
}

void Optimizer::take_pieces(std::span<const ddl::GradientPiece> shards) {
  shards_.assign(shards.begin(), shards.end());
  std::ranges::sort(shards_, {}, [](const auto& shard) { return std::tuple(shard.gradient, shard.first); });
  stretches_ = joined();
  std::int64_t elements = 0;
  for (const Stretch& stretch : stretches_) elements += stretch.count;
  whole_ = elements == parameters_.layout().size;
  const std::size_t bytes = static_cast<std::size_t>(elements) * ddl::size_of(backend_.type());
  if (recipe_.m) m_ = backend_.allocate(bytes);
  if (recipe_.v) v_ = backend_.allocate(bytes);
  if (!recipe_.measure) return;
  std::vector<Layer> layers(parameters_.count());
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers[i].decays = parameters_.layout().parameters[i].decays;
  layers_ = backend_.allocate(layers.size() * sizeof(Layer));
  backend_.upload_bytes(layers_.get(), std::as_bytes(std::span(layers)));
  sums_memory_ = backend_.allocate(2 * layers.size() * sizeof(double));
  sums_ = {sums_memory_.get(), static_cast<std::int64_t>(layers.size()), 2, 2, ddl::DataType::f64};
  if (scaling_.rule == LayerRule::novograd)
    second_moments_ = backend_.allocate(layers.size() * sizeof(float));
}

std::vector<Optimizer::Stretch> Optimizer::joined() const {
  const bool each_parameter = recipe_.measure || settings_.weight_decay != 0;
  std::vector<Stretch> stretches;
  std::int64_t moment = 0;
  for (const ddl::GradientPiece& shard : shards_) {
    const auto count = static_cast<std::int64_t>(shard.count);
    const std::int64_t first =
        parameters_.layout().parameters[shard.gradient].offset + static_cast<std::int64_t>(shard.first);
    const double share = share_of(shard);
    if (!stretches.empty() && stretches.back().first + stretches.back().count == first &&
        stretches.back().share == share &&
        (!each_parameter || stretches.back().parameter == shard.gradient)) {
      stretches.back().count += count;
    } else {
      stretches.push_back({shard.gradient, first, count, moment, share});
    }
    moment += count;
  }
  return stretches;
}

double Optimizer::share_of(const ddl::GradientPiece& shard) const {
  const std::int64_t size = parameters_.layout().parameters[shard.gradient].size();
  const bool is_of_all_ranks = static_cast<std::int64_t>(shard.first) >= size - of_all_ranks_[shard.gradient];
  return is_of_all_ranks ? 1 / ranks_ : 1;
}

Tensor Optimizer::moment(void* block, std::int64_t first, std::int64_t count) const {
  if (block == nullptr) return {};
  const Tensor values = parameters_.values();
  return Tensor{block, 1, first + count, first + count, values.type}.col_range(first, count);
}

UpdateTensors Optimizer::tensors_of(const Stretch& stretch) const {
  return {.values = parameters_.values().col_range(stretch.first, stretch.count),
          .gradients = parameters_.gradients().col_range(stretch.first, stretch.count),
          .m = moment(m_.get(), stretch.moment, stretch.count),
          .v = moment(v_.get(), stretch.moment, stretch.count)};
}

UpdateSettings Optimizer::settings_of(const Stretch& stretch) const {
  UpdateSettings settings = settings_;
  if (!parameters_.layout().parameters[stretch.parameter].decays) settings.weight_decay = 0;
  return settings;
}

void Optimizer::scale_layers(const StepFactors* step) {
  backend_.zero(sums_);
  for (const Stretch& stretch : stretches_) {
    UpdateTensors tensors = tensors_of(stretch);
    tensors.sums = sums_.row_range(static_cast<std::int64_t>(stretch.parameter), 1);
    UpdateSettings settings = settings_of(stretch);
    settings.sums_share = stretch.share;
    settings.zero_gradients = settings_.zero_gradients && *recipe_.measure != UpdateRule::norms;
    backend_.update(*recipe_.measure, tensors, settings);
  }
  if (!whole_) sum_over_ranks_(sums_);
  backend_.scale_layers(scaling_, step, sums_, static_cast<float*>(second_moments_.get()),
                        static_cast<Layer*>(layers_.get()));
}

void Optimizer::update(const StepFactors* step) {
  settings_.zero_gradients = whole_;
  settings_.factors = step;
  if (recipe_.measure) scale_layers(step);
  for (const Stretch& stretch : stretches_) {
    UpdateSettings settings = settings_of(stretch);
    if (recipe_.measure) settings.factors = &static_cast<Layer*>(layers_.get())[stretch.parameter].factors;
    if (recipe_.rule == UpdateRule::lamb_step) settings.zero_gradients = false;  // they are
    backend_.update(recipe_.rule, tensors_of(stretch), settings);
  }
  backend_.parameters_changed();
}

std::vector<Optimizer::State> Optimizer::state() const {
  std::vector<State> states;
  for (const auto& [prefix, block] : {std::pair{"m/", m_.get()}, std::pair{"v/", v_.get()}}) {
    if (block == nullptr) continue;
    std::int64_t at = 0;
    for (const ddl::GradientPiece& shard : shards_) {
      const ParameterSpec& parameter = parameters_.layout().parameters[shard.gradient];
      const auto count = static_cast<std::int64_t>(shard.count);
      states.push_back({prefix + parameter.name, parameter.rows, parameter.cols,
                        static_cast<std::int64_t>(shard.first), moment(block, at, count)});
      at += count;
    }
  }
  if (second_moments_ != nullptr) {
    states.push_back(
        {"v", 1, sums_.rows, 0, {second_moments_.get(), 1, sums_.rows, sums_.rows, ddl::DataType::f32}});
  }
  return states;
}

}  // namespace nmt
