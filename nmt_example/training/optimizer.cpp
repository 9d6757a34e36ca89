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

double larc_factor(double eta, double norm, double gradient_norm, const UpdateSettings& settings) {
  constexpr double least = 1e-7, epsilon = 1e-7;
  if (norm == 0 || gradient_norm == 0) return 1;
  const double change = settings.learning_rate * (gradient_norm + settings.weight_decay * norm + epsilon);
  return std::min(1.0, std::max(least, eta * norm / change));
}

}  // namespace

Optimizer::Recipe Optimizer::recipe_of(const Options& options) {
  const std::optional<UpdateRule> larc =
      options.larc_eta > 0 ? std::optional(UpdateRule::norms) : std::nullopt;
  switch (options.optimizer) {
    case OptimizerKind::sgd:
      return {.rule = UpdateRule::sgd, .measure = larc};
    case OptimizerKind::momentum:
      return {
          .rule = options.nesterov ? UpdateRule::nesterov : UpdateRule::momentum, .m = true, .measure = larc};
    case OptimizerKind::novograd:
      return {.rule = UpdateRule::momentum, .m = true, .measure = UpdateRule::norms};
    case OptimizerKind::lamb:
      return {.rule = UpdateRule::lamb_step, .m = true, .v = true, .measure = UpdateRule::lamb_moments};
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      break;
  }
  return {.rule = UpdateRule::adam, .m = true, .v = true};
}

Optimizer::Optimizer(Backend& backend, ParameterSet& parameters, const Options& options)
    : backend_(backend),
      parameters_(parameters),
      kind_(options.optimizer),
      recipe_(recipe_of(options)),
      settings_(settings_from(options)),
      larc_eta_(options.larc_eta),
      of_all_ranks_(parameters.count()) {
  if (kind_ == OptimizerKind::novograd) {
    const auto count = static_cast<std::int64_t>(parameters.count());
    second_on_host_.resize(parameters.count());
    second_moments_memory_ = backend.allocate(parameters.count() * ddl::size_of(backend.type()));
    second_moments_ = {second_moments_memory_.get(), 1, count, count, backend.type()};
  }
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
  for (const ddl::GradientPiece& shard : shards) counts[shard.gradient] += static_cast<double>(shard.count);
  counts[parameters] = 1;
  sum_over_ranks_(counts);
  ranks_ = counts[parameters];
  for (std::size_t i = 0; i < parameters; ++i) {
    const double more = counts[i] - static_cast<double>(parameters_.layout().parameters[i].size());
    of_all_ranks_[i] = ranks_ > 1 ? static_cast<std::int64_t>(more / (ranks_ - 1)) : 0;
  }
  take_pieces(shards);
  if (!second_on_host_.empty()) backend_.zero(second_moments_);
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
  sums_on_host_.resize(2 * stretches_.size());
  square_norms_.resize(2 * parameters_.count());
  sums_memory_ = backend_.allocate(sums_on_host_.size() * sizeof(double));
  const auto sums = static_cast<std::int64_t>(sums_on_host_.size());
  sums_ = {sums_memory_.get(), 1, sums, sums, ddl::DataType::f64};
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

UpdateSettings Optimizer::unscaled_settings_of(const Stretch& stretch) const {
  UpdateSettings settings = settings_;
  if (!parameters_.layout().parameters[stretch.parameter].decays) settings.weight_decay = 0;
  return settings;
}

UpdateSettings Optimizer::settings_of(const Stretch& stretch) const {
  UpdateSettings settings = unscaled_settings_of(stretch);
  if (!recipe_.measure) return settings;
  const bool decays = parameters_.layout().parameters[stretch.parameter].decays;
  const double norm = std::sqrt(square_norms_[2 * stretch.parameter]);
  const double measured = std::sqrt(square_norms_[2 * stretch.parameter + 1]);
  if (kind_ == OptimizerKind::lamb) {
    if (decays && norm > 0 && measured > 0) settings.learning_rate *= norm / measured;
  } else if (kind_ == OptimizerKind::novograd) {
    settings.gradient_scale /=
        std::sqrt(static_cast<double>(second_on_host_[stretch.parameter])) + settings_.epsilon;
  } else {
    const double factor = larc_factor(larc_eta_, norm, measured * settings.gradient_scale, settings);
    settings.gradient_scale *= factor;
    settings.weight_decay *= factor;
  }
  return settings;
}

void Optimizer::measure(UpdateRule rule) {
  std::ranges::fill(square_norms_, 0.0);
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    UpdateTensors tensors = tensors_of(stretches_[i]);
    tensors.sums = sums_.col_range(2 * static_cast<std::int64_t>(i), 2);
    UpdateSettings settings = unscaled_settings_of(stretches_[i]);
    settings.zero_gradients = settings_.zero_gradients && rule != UpdateRule::norms;
    backend_.update(rule, tensors, settings);
  }
  backend_.download(sums_, std::span(sums_on_host_));
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    const Stretch& stretch = stretches_[i];
    for (std::size_t k = 0; k < 2; ++k)
      square_norms_[2 * stretch.parameter + k] += stretch.share * sums_on_host_[2 * i + k];
  }
  if (!whole_) sum_over_ranks_(square_norms_);
}

void Optimizer::move_second_moments() {
  backend_.download(second_moments_, std::span(second_on_host_));
  for (std::size_t i = 0; i < second_on_host_.size(); ++i) {
    const double square = square_norms_[2 * i + 1] * settings_.gradient_scale * settings_.gradient_scale;
    float& v = second_on_host_[i];
    v = static_cast<float>(v == 0 ? square : settings_.beta2 * v + (1 - settings_.beta2) * square);
  }
  backend_.upload(second_moments_, second_on_host_);
}

void Optimizer::update(const StepFactors* step) {
  settings_.zero_gradients = whole_;
  settings_.factors = step;
  if (recipe_.measure) {
    StepFactors known;
    backend_.download_bytes(step, std::as_writable_bytes(std::span(&known, 1)));
    if (!known.takes) {
      if (whole_) backend_.zero(parameters_.gradients());
      return;
    }
    settings_.factors = nullptr;
    settings_.learning_rate = known.learning_rate;
    settings_.gradient_scale = known.gradient_scale;
    settings_.step = known.step;
    measure(*recipe_.measure);
  }
  if (kind_ == OptimizerKind::novograd) move_second_moments();
  for (const Stretch& stretch : stretches_) {
    UpdateSettings settings = settings_of(stretch);
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
  if (!second_moments_.empty()) states.push_back({"v", 1, second_moments_.cols, 0, second_moments_});
  return states;
}

}  // namespace nmt
