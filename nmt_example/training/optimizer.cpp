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

void Optimizer::take_pieces(std::span<const ddl::GradientPiece> pieces) {
  std::vector<ddl::GradientPiece> sorted(pieces.begin(), pieces.end());
  std::ranges::sort(sorted, {}, [](const auto& piece) { return std::tuple(piece.gradient, piece.first); });
  ranges_.clear();
  std::int64_t elements = 0, moments = 0;
  for (const ddl::GradientPiece& piece : sorted) {
    const ParameterSpec& parameter = parameters_.layout().parameters[piece.gradient];
    const auto index = static_cast<std::int32_t>(piece.gradient);
    const std::int64_t first = parameter.offset + static_cast<std::int64_t>(piece.first);
    const auto count = static_cast<std::int64_t>(piece.count);
    const double share = share_of(piece);
    elements += count;
    UpdateRange* const before = ranges_.empty() ? nullptr : &ranges_.back();
    if (before != nullptr && before->layer == index && before->first + before->count == first &&
        before->sums_share == share) {  // the parameter goes on in another bucket
      before->count += count;
    } else {
      moments = aligned_stride(moments) + first % 8;  // as well aligned as the parameters
      ranges_.push_back({first, count, moments, index, parameter.decays, share});
    }
    moments += count;
  }
  whole_ = elements == parameters_.layout().size;
  const auto allocate = [&](bool is_used, std::shared_ptr<void>& memory) {
    if (is_used)
      memory = backend_.allocate(static_cast<std::size_t>(moments) * ddl::size_of(backend_.type()));
    return is_used ? Tensor(memory.get(), 1, moments, moments, backend_.type()) : Tensor();
  };
  tensors_ = {.values = parameters_.values(),
              .gradients = parameters_.gradients(),
              .m = allocate(recipe_.m, m_),
              .v = allocate(recipe_.v, v_)};
  if (!recipe_.measure) return;
  std::vector<Layer> layers(parameters_.count());
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers[i].decays = parameters_.layout().parameters[i].decays;
  layers_ = backend_.allocate(layers.size() * sizeof(Layer));
  backend_.upload_bytes(layers_.get(), std::as_bytes(std::span(layers)));
  sums_ = backend_.allocate(2 * layers.size() * sizeof(double));
  tensors_.sums = {sums_.get(), static_cast<std::int64_t>(layers.size()), 2, 2, ddl::DataType::f64};
  if (scaling_.rule == LayerRule::novograd)
    second_moments_ = backend_.allocate(layers.size() * sizeof(float));
}

double Optimizer::share_of(const ddl::GradientPiece& shard) const {
  const std::int64_t size = parameters_.layout().parameters[shard.gradient].size();
  const bool is_of_all_ranks = static_cast<std::int64_t>(shard.first) >= size - of_all_ranks_[shard.gradient];
  return is_of_all_ranks ? 1 / ranks_ : 1;
}

void Optimizer::update(const StepFactors* step) {
  UpdateSettings settings = settings_;
  settings.factors = step;
  // It is the last to read the gradients, if it is used.
  const bool moves_moments = recipe_.measure == UpdateRule::lamb_moments;
  if (recipe_.measure) {
    settings.zero_gradients = whole_ && moves_moments;
    backend_.zero(tensors_.sums);
    backend_.update(*recipe_.measure, tensors_, settings, ranges_);
    if (!whole_) sum_over_ranks_(tensors_.sums);
    settings.layers = static_cast<Layer*>(layers_.get());
    backend_.scale_layers(scaling_, step, tensors_.sums, static_cast<float*>(second_moments_.get()),
                          static_cast<Layer*>(layers_.get()));
  }
  settings.zero_gradients = whole_ && !moves_moments;
  backend_.update(recipe_.rule, tensors_, settings, ranges_);
  backend_.parameters_changed();
}

std::vector<Optimizer::State> Optimizer::state() const {
  std::vector<State> states;
  for (const auto& [prefix, moments] : {std::pair{"m/", tensors_.m}, std::pair{"v/", tensors_.v}}) {
    if (moments.data == nullptr) continue;
    for (const UpdateRange& range : ranges_) {
      const ParameterSpec& parameter = parameters_.layout().parameters[static_cast<std::size_t>(range.layer)];
      states.push_back({prefix + parameter.name, parameter.rows, parameter.cols,
                        range.first - parameter.offset, moments.col_range(range.moment, range.count)});
    }
  }
  if (second_moments_ != nullptr) {
    const auto layers = static_cast<std::int64_t>(parameters_.count());
    states.push_back({"v", 1, layers, 0, {second_moments_.get(), 1, layers, layers, ddl::DataType::f32}});
  }
  return states;
}

}  // namespace nmt
