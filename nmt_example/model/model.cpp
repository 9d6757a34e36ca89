#include "nmt_example/model/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "ddl/error.hpp"

namespace nmt {
namespace {

/// Differs for batches of other sizes or kinds, and for those whose tensors or parameters are elsewhere.
std::uint64_t batch_key(const Arena& arena, const ParameterSet& parameters, const DropoutSettings& dropout,
                        std::initializer_list<std::int64_t> sizes) {
  std::uint64_t key = std::bit_cast<std::uint64_t>(dropout.rate);
  key = mixed(key, std::bit_cast<std::uint64_t>(dropout.output_rate));
  key = mixed(key, dropout.per_sentence ? 1 : 0);
  for (const void* const memory : {arena.block(), static_cast<const void*>(parameters.values().data),
                                   static_cast<const void*>(parameters.gradients().data)})
    key = mixed(key, reinterpret_cast<std::uintptr_t>(memory));
  key = mixed(key, arena.used());
  for (const std::int64_t size : sizes) key = mixed(key, static_cast<std::uint64_t>(size));
  return key;
}

BatchLimits sizes_of(const BatchView& batch) {
  return {batch.sentences, batch.source_steps, batch.target_steps};
}

constexpr std::int64_t rounded_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Rows of a search's step, which has at most `most`: some more than it has, because backends prepare
/// products, or record the step, for each number of rows.
std::int64_t padded_rows(const Backend& backend, std::int64_t rows, std::int64_t most) {
  if (backend.records()) return std::min(rounded_up(rows, (most + 3) / 4), most);
  constexpr std::int64_t multiple = 16;
  return rows < multiple ? rows : rounded_up(rows, multiple);
}

/// Steps of a batch. Where work is recorded, they are rounded up a little: most batches then have shapes that
/// there were before.
std::int64_t padded_steps(const Backend& backend, std::int64_t steps) {
  return backend.records() ? rounded_up(steps, 4) : steps;
}

}  // namespace

Model::Model(Backend& backend, const ModelShape& shape, const BatchLimits& limits,
             std::shared_ptr<void> gradients, const ModelTypes& types)
    : backend_(backend),
      shape_(shape),
      network_(layout_, shape),
      parameters_(backend, layout_,
                  gradients != nullptr || limits.sentences == 0
                      ? std::move(gradients)
                      : backend.allocate(static_cast<std::size_t>(layout_.extent) *
                                         ddl::size_of(types.gradients.value_or(backend.type()))),
                  types.gradients),
      activations_(types.activations.value_or(backend.type())),
      arena_(activations_, backend.type()) {
  also_allow(limits);
}

void Model::also_allow(const BatchLimits& limits) {
  limits_.push_back(limits);
  workspace_bytes_ = std::max(workspace_bytes_, bytes_of(limits, true));
  arena_.reserve(backend_, workspace_bytes_);
  const auto words = static_cast<std::size_t>(limits.sentences * limits.target_steps);
  host_rows_.reserve(std::max(words, host_rows_.capacity()));
  host_targets_.reserve(host_rows_.capacity());
}

void Model::plan(const BatchLimits& sizes, bool training) {
  const auto [sentences, source_steps, target_steps] = sizes;
  arena_.reset();
  source_ = arena_.take_indices(source_steps * sentences);
  source_lengths_ = arena_.take_indices(sentences);
  target_in_ = arena_.take_indices(target_steps * sentences);
  samples_ = arena_.take_indices(std::max(source_steps, target_steps) * sentences);
  loss_rows_ = arena_.take_indices(target_steps * sentences);
  targets_ = arena_.take_indices(target_steps * sentences);
  dropout_keys_ =
      static_cast<PhiloxKey*>(arena_.take_bytes(layout_.dropout_sites.size() * sizeof(PhiloxKey)));
  words_ = arena_.take(1, 1, ddl::DataType::f64);
  sums_ = arena_.take(1, 2, ddl::DataType::f64);
  network_.encoder->plan(arena_, sentences, source_steps, training);
  network_.decoder.plan(arena_, sentences, source_steps, target_steps, training);
  network_.projection.plan(arena_, backend_, target_steps * sentences, training);
}

/// Null if they are not within any.
const BatchLimits* Model::limits_of(const BatchLimits& sizes) const {
  const auto found = std::ranges::find_if(limits_, [&](const BatchLimits& limits) {
    return sizes.sentences <= limits.sentences && sizes.source_steps <= limits.source_steps &&
           sizes.target_steps <= limits.target_steps;
  });
  return found == limits_.end() ? nullptr : &*found;
}

/// The sizes with which a batch is computed: not beyond limits that it is within.
BatchLimits Model::padded(const BatchView& batch) const {
  const BatchLimits own = sizes_of(batch);
  const BatchLimits* const limits = limits_of(own);
  if (limits == nullptr) return own;
  return {own.sentences, std::min(padded_steps(backend_, own.source_steps), limits->source_steps),
          std::min(padded_steps(backend_, own.target_steps), limits->target_steps)};
}

StagedBatch Model::stage(const BatchView& batch, const DropoutSettings& dropout, GradientUse use,
                         std::int64_t loss_rows) {
  if (!is_within_limits(sizes_of(batch))) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("a batch of {} sentences, {} source and {} target steps exceeds the model's "
                                 "limits of {}, {} and {}",
                                 batch.sentences, batch.source_steps, batch.target_steps, limits().sentences,
                                 limits().source_steps, limits().target_steps));
  }
  if (use == GradientUse::replace) backend_.zero(parameters_.gradients());
  return staged(batch, dropout, true, loss_rows);
}

void Model::forward_backward(const StagedBatch& batch, double label_smoothing, const ReadyFunction& ready,
                             const Tensor& sums) {
  if (batch.sizes.sentences > 0) return run(batch, label_smoothing, &ready, sums);
  for (std::size_t i = parameters_.count(); i-- > 0;) ready(i);
}

std::size_t Model::bytes_of(const BatchLimits& sizes, bool training) {
  Arena counter(activations_, backend_.type());
  std::swap(arena_, counter);
  plan(sizes, training);
  std::swap(arena_, counter);
  return counter.used();
}

bool Model::fits(std::int64_t sentences, std::int64_t source_steps, std::int64_t target_steps) {
  return bytes_of({sentences, source_steps, target_steps}, false) <= workspace_bytes_;
}

void Model::prepare_evaluation(const BatchView& batch) {
  const std::size_t bytes = evaluation_bytes(batch);
  if (bytes > std::max(workspace_bytes_, largest_workspace)) {
    throw ddl::Error(
        ddl::ErrorCode::unsupported,
        fmt::format(
            "evaluating {} sentences of up to {} source and {} target words needs {:.1f} GB of working "
            "memory; expected at most {:.1f} GB. Cut longer sentences with --src_max_len_infer and "
            "--tgt_max_len_infer.",
            batch.sentences, batch.source_steps, batch.target_steps - 1, static_cast<double>(bytes) / 1e9,
            static_cast<double>(std::max(workspace_bytes_, largest_workspace)) / 1e9));
  }
  arena_.reserve(backend_, bytes);
}

std::vector<double> Model::sentence_losses(const BatchView& batch) {
  prepare_evaluation(batch);
  std::vector<double> losses;
  run(staged(batch, {}, false, 0, true), 0.0, nullptr, {}, batch.target_lengths, &losses);
  return losses;
}

BatchLoss Model::evaluate(const BatchView& batch) {
  prepare_evaluation(batch);
  if (batch.sentences == 0) return {};
  run(staged(batch, {}, false, 0), 0.0, nullptr, {});
  double sums[2];
  backend_.download(sums_, sums);
  return {sums[0], sums[1],
          std::accumulate(batch.target_lengths.begin(), batch.target_lengths.end(), std::int64_t{0})};
}

/// The rows that have a target word. Where the loss is recorded, some of the others are added, with no target
/// (-1), up to `least` rows, and so that most batches of a shape have a number of rows that there was before.
void Model::list_loss_rows(const BatchView& batch, const BatchLimits& sizes, std::int64_t least,
                           bool records) {
  host_rows_.clear();
  host_targets_.clear();
  const auto list = [&](bool targets, std::size_t most) {
    for (std::int64_t row = 0; row < sizes.target_steps * sizes.sentences && host_rows_.size() < most;
         ++row) {
      const std::int64_t t = row / sizes.sentences;
      if ((t < batch.target_lengths[static_cast<std::size_t>(row % sizes.sentences)]) != targets) continue;
      host_rows_.push_back(static_cast<std::int32_t>(row));
      host_targets_.push_back(targets ? batch.target_out[static_cast<std::size_t>(row)] : -1);
    }
  };
  const std::int64_t all = sizes.target_steps * sizes.sentences;
  list(true, static_cast<std::size_t>(all));
  if (!records) return;
  const std::int64_t rows = std::max(static_cast<std::int64_t>(host_rows_.size()), least);
  list(false, static_cast<std::size_t>(std::min(rounded_up(rows, (all + 15) / 16), all)));
}

/// The same rows, sentence after sentence.
void Model::sort_by_sentence(const BatchView& batch) {
  const auto sentences = static_cast<std::int32_t>(batch.sentences);
  std::ranges::stable_sort(host_rows_, {}, [&](std::int32_t row) { return row % sentences; });
  for (std::size_t i = 0; i < host_rows_.size(); ++i)
    host_targets_[i] = batch.target_out[static_cast<std::size_t>(host_rows_[i])];
}

/// Everything of a batch, in one copy. The ids of padded steps, which nothing depends on, are 0. Returns the
/// samples that dropout is for.
Indices Model::upload_batch(const BatchView& batch, const DropoutSettings& dropout) {
  staging_.begin(source_.data, sums_.data);
  staging_.put(source_, batch.source);
  staging_.put(source_lengths_, batch.source_lengths);
  staging_.put(target_in_, batch.target_in);
  const std::int64_t samples = dropout.per_sentence ? samples_.size : batch.sentences;
  for (std::int64_t row = 0; row < samples; row += batch.sentences)
    staging_.put(samples_.range(row, batch.sentences), batch.samples);
  staging_.put(loss_rows_, host_rows_);
  staging_.put(targets_, host_targets_);
  for (std::size_t i = 0; i < layout_.dropout_sites.size(); ++i) {
    const PhiloxKey key = DropoutKey{dropout.seed, dropout.step, layout_.dropout_sites[i]}.philox_key();
    staging_.put(dropout_keys_ + i, std::as_bytes(std::span(&key, 1)));
  }
  const double words = static_cast<double>(
      std::accumulate(batch.target_lengths.begin(), batch.target_lengths.end(), std::int64_t{0}));
  staging_.put(words_.data, std::as_bytes(std::span(&words, 1)));
  staging_.upload(backend_);
  return samples_.range(0, samples);
}

/// `by_sentence`: the loss is computed sentence by sentence.
StagedBatch Model::staged(const BatchView& batch, const DropoutSettings& dropout, bool training,
                          std::int64_t loss_rows, bool by_sentence) {
  if (batch.sentences == 0) return {};
  const BatchLimits sizes = padded(batch);
  // Words are drawn, and their weights gathered, on the host.
  const bool records_loss = backend_.records() && !by_sentence && !(training && shape_.sampled_words > 0);
  list_loss_rows(batch, sizes, loss_rows, records_loss);
  if (by_sentence) sort_by_sentence(batch);
  plan(sizes, training);
  const Indices samples = upload_batch(batch, dropout);
  return {.sizes = sizes,
          .loss_rows = static_cast<std::int64_t>(host_rows_.size()),
          .words = words_.as<double>(),
          .dropout = dropout,
          .samples = samples,
          .key = batch_key(arena_, parameters_, dropout,
                           {sizes.sentences, sizes.source_steps, sizes.target_steps, training}),
          .records_loss = records_loss};
}

/// `lengths`: of the target sentences, for `sentence_losses`.
void Model::run(const StagedBatch& batch, double label_smoothing, const ReadyFunction* ready,
                const Tensor& sums, std::span<const std::int32_t> lengths,
                std::vector<double>* sentence_losses) {
  const bool training = ready != nullptr;
  if (!training) backend_.zero(sums_);
  const auto tell = [&](std::string_view part) {
    if (training && on_part_) on_part_(part);
  };
  missing_.clear();
  for (const ParameterSpec& parameter : layout_.parameters) missing_.push_back(parameter.uses);
  BackwardProgress progress{ready, missing_, added_};
  const StepContext step{.backend = backend_,
                         .parameters = parameters_,
                         .dropout = batch.dropout,
                         .samples = batch.samples,
                         .dropout_keys = dropout_keys_,
                         .batch_key = batch.key,
                         .backward = training ? &progress : nullptr};
  auto& encoder = network_.encoder;
  auto& decoder = network_.decoder;
  auto& projection = network_.projection;
  tell("forward");
  step.replay(0, 0, [&] {
    encoder->forward(step, source_, source_lengths_);
    decoder.forward(step, encoder->result(), target_in_);
  });
  tell("loss");
  const Tensor& loss_sums = training ? sums : sums_;
  const auto add_loss = [&](std::int64_t first, std::int64_t count) {
    projection.loss(
        step, decoder.output(), loss_rows_.range(first, count), targets_.range(first, count),
        std::span(host_targets_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
        label_smoothing, training ? decoder.d_output() : Tensor(), loss_scale_, loss_sums);
  };
  const std::int64_t rows = batch.loss_rows;
  if (batch.records_loss) {
    std::uint64_t key =
        mixed(static_cast<std::uint64_t>(rows), std::bit_cast<std::uint64_t>(label_smoothing));
    for (const void* const memory :
         {static_cast<const void*>(loss_scale_), static_cast<const void*>(loss_sums.data)})
      key = mixed(key, std::bit_cast<std::uintptr_t>(memory));
    const auto add_all = [&] { add_loss(0, rows); };
    step.replay(0, 1, add_all, key);
  } else if (sentence_losses == nullptr) {
    add_loss(0, rows);
  } else {
    std::int64_t first = 0;
    for (const std::int32_t length : lengths) {
      backend_.zero(sums_);
      add_loss(first, length);
      first += length;
      double loss[2];
      backend_.download(sums_, loss);
      sentence_losses->push_back(loss[0]);
    }
  }
  if (training) {
    tell("backward");
    decoder.backward(step, encoder->result(), target_in_);
    encoder->backward(step, source_);
  }
}

SearchModel::SearchModel(Model& model, std::int64_t beam)
    : model_(model),
      backend_(model.backend_),
      beam_(beam),
      network_(layout_, model.shape_),
      arena_(model.activations_, model.backend_.type()) {}

StepContext SearchModel::context() const {
  return {.backend = backend_,
          .parameters = model_.parameters_,
          .dropout = {},
          .samples = samples_,
          .batch_key = batch_key(
              arena_, model_.parameters_, {},
              {sentences_, source_steps_, beam_, padded_rows_, static_cast<std::int64_t>(source_rows_.size()),
               static_cast<std::int64_t>(std::bit_cast<std::uintptr_t>(word_products_.get()))})};
}

std::size_t SearchModel::workspace_bytes(std::int64_t sentences, std::int64_t source_steps) {
  Arena counter(model_.activations_, backend_.type());
  std::swap(arena_, counter);
  plan(sentences, padded_steps(backend_, source_steps));
  std::swap(arena_, counter);
  return counter.used();
}

void SearchModel::plan(std::int64_t sentences, std::int64_t source_steps) {
  arena_.reset();
  const std::int64_t rows = padded_rows(backend_, sentences * beam_, sentences * beam_);
  source_ = arena_.take_indices(source_steps * sentences);
  source_lengths_ = arena_.take_indices(sentences);
  samples_ = arena_.take_indices(sentences);
  row_indices_ = arena_.take_indices(5 * rows);
  const std::int64_t vocabulary = network_.projection.vocabulary();
  log_probs_ = arena_.take_full(rows, aligned_stride(vocabulary)).col_range(0, vocabulary);
  best_ = arena_.take(rows, 2 * std::min(beam_ + 2, vocabulary) + 3, ddl::DataType::f64);
  numbers_ = arena_.take(1, rows, ddl::DataType::f64);
  network_.encoder->plan(arena_, sentences, source_steps, false);
  network_.decoder.plan_search(arena_, sentences, source_steps, rows);
}

void SearchModel::make_word_products() {
  const std::int64_t words = network_.projection.vocabulary();
  const std::int64_t columns = network_.decoder.word_product_columns();
  const ddl::DataType type = model_.activations_;
  const std::size_t bytes = static_cast<std::size_t>(words * columns) * ddl::size_of(type);
  if (word_products_ != nullptr || expected_rows_ <= words || bytes > largest_word_products) return;
  word_products_ = backend_.allocate(bytes);
  network_.decoder.set_word_products(context(), {word_products_.get(), words, columns, columns, type});
}

void SearchModel::start(const BatchView& batch) {
  sentences_ = batch.sentences;
  source_steps_ = padded_steps(backend_, batch.source_steps);
  arena_.reserve(backend_, workspace_bytes(sentences_, source_steps_));
  plan(sentences_, source_steps_);
  staging_.begin(source_.data, samples_.data);
  staging_.put(source_, batch.source);
  staging_.put(source_lengths_, batch.source_lengths);
  staging_.upload(backend_);
  rows_ = padded_rows_ = sentences_;
  source_rows_.clear();
  sentence_of_row_.resize(static_cast<std::size_t>(sentences_));
  std::iota(sentence_of_row_.begin(), sentence_of_row_.end(), 0);
  make_word_products();
  network_.encoder->forward(context(), source_, source_lengths_);
  network_.decoder.start_search(context(), network_.encoder->result(), sentences_);
}

void SearchModel::step(std::span<const std::int32_t> parents, std::span<const std::int32_t> words) {
  rows_ = static_cast<std::int64_t>(parents.size());
  const std::int64_t most = sentences_ * beam_;
  padded_rows_ = padded_rows(backend_, rows_, most);
  assert(rows_ > 0 && words.size() == parents.size());
  const auto rows = static_cast<std::size_t>(padded_rows_);
  // Rows of padding continue row 0.
  host_indices_.assign(4 * rows, 0);
  const auto host_part = [&](std::size_t n) { return std::span(host_indices_).subspan(n * rows, rows); };
  std::ranges::copy(parents, host_part(1).begin());
  std::ranges::copy(words, host_part(2).begin());
  source_of_parent_.assign(sentence_of_row_.size(), -1);
  source_rows_.clear();
  for (std::size_t r = 0; r < rows; ++r) {
    const std::int32_t parent = host_part(1)[r];
    host_part(0)[r] = sentence_of_row_[static_cast<std::size_t>(parent)];
    std::int32_t& source = source_of_parent_[static_cast<std::size_t>(parent)];
    if (source < 0) {
      source = static_cast<std::int32_t>(source_rows_.size());
      source_rows_.push_back(parent);
    }
    host_part(3)[r] = source;
  }
  source_rows_.resize(
      static_cast<std::size_t>(padded_rows(backend_, static_cast<std::int64_t>(source_rows_.size()), most)));
  sentence_of_row_.assign(host_part(0).begin(), host_part(0).end());
  host_indices_.insert(host_indices_.end(), source_rows_.begin(), source_rows_.end());
  backend_.upload(row_indices_, host_indices_);
  const auto part = [&](std::int64_t n) { return row_indices_.range(n * padded_rows_, padded_rows_); };
  const Indices source_rows =
      row_indices_.range(4 * padded_rows_, static_cast<std::int64_t>(source_rows_.size()));
  network_.decoder.search_step(context(), network_.encoder->result(),
                               {.sentence_of_row = part(0),
                                .parents = part(1),
                                .ids = part(2),
                                .sources = part(3),
                                .source_rows = source_rows});
}

Tensor SearchModel::log_probabilities() {
  const Tensor log_probs = log_probs_.row_range(0, padded_rows_);
  network_.projection.log_probabilities(context(), network_.decoder.output(), log_probs);
  return used(log_probs);
}

Tensor SearchModel::log_sums(std::span<SearchModel> others) {
  const Tensor sums = log_probabilities();
  for (SearchModel& other : others) {
    assert(&other.backend_ == &backend_ && other.rows_ == rows_);
    backend_.log_add_exp(other.log_probabilities(), sums);
  }
  return sums;
}

std::span<const double> SearchModel::downloaded(const Tensor& words) {
  words_.resize(static_cast<std::size_t>(words.size()));
  backend_.download(words, words_);
  return words_;
}

std::span<const double> SearchModel::best_words(std::int32_t also, std::span<SearchModel> others) {
  if (others.empty()) {
    const StepContext step = context();
    const auto find = [&] {
      network_.projection.best_words(step, network_.decoder.output(), also,
                                     log_probs_.row_range(0, padded_rows_), best_.row_range(0, padded_rows_));
    };
    step.replay(0, 2, find, static_cast<std::uint64_t>(also));
  } else {
    const Tensor sums = log_sums(others);
    const std::int64_t most = backend_.best_block().columns;
    for (std::int64_t first = 0, count = 0; first < sums.cols; first += count) {
      count = std::min(most, sums.cols - first);
      backend_.best_log_softmax(sums.col_range(first, count), first, sums.cols, also, used(best_));
    }
  }
  return downloaded(used(best_).col_range(0, best_.cols - 2));
}

std::span<const double> SearchModel::draw_words(std::span<const double> numbers, double temperature,
                                                std::int32_t excluded, std::span<SearchModel> others) {
  const Tensor log_probs = log_sums(others), drawn = used(best_).col_range(0, 2);
  if (!others.empty()) backend_.log_softmax(log_probs);
  backend_.upload_bytes(numbers_.data, std::as_bytes(numbers));
  backend_.draw_columns(log_probs, numbers_.as<double>(), temperature, excluded, drawn);
  return downloaded(drawn);
}

std::span<const float> SearchModel::attention_weights() {
  const Tensor weights = network_.decoder.search_weights();
  weights_.resize(static_cast<std::size_t>(rows_ * weights.cols));
  if (!weights_.empty()) backend_.download(used(weights), weights_);
  return weights_;
}

}  // namespace nmt
