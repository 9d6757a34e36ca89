#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/model/parameters.hpp"

namespace nmt {

/// A hash of both.
constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  const auto words =
      philox({static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32), 0, 0},
             {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)});
  return std::uint64_t{words[1]} << 32 | words[0];
}

/// Called with a parameter's index when its gradient is final.
using ReadyFunction = std::function<void(std::size_t)>;

/// A step's rates of dropout, which are 0 in evaluation and inference, and the key of all its random numbers.
struct DropoutSettings {
  double rate = 0;  ///< Of cells' inputs.
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  double output_rate = 0;     ///< Of what the output layer reads; only if `ModelShape::drops_output`.
  bool per_sentence = false;  ///< All words of a sentence lose the same elements (Gal and Ghahramani 2016).
};

/// The gradients that work adds to, by the layer and the number of the part that it is.
using AddedGradients = std::map<std::pair<std::size_t, int>, std::vector<std::size_t>>;

/// The uses of each parameter whose part of the gradient is still missing in a backward pass.
struct BackwardProgress {
  const ReadyFunction* ready;
  std::vector<int>& missing;
  AddedGradients& added;                       ///< Kept, as recorded work does not say it again.
  std::vector<std::size_t>* inside = nullptr;  ///< Of the work that is running, if a backend may record it.
};

/// The step that a layer works in.
struct StepContext {
  Backend& backend;
  const ParameterSet& parameters;
  DropoutSettings dropout;
  Indices samples;  ///< [sentences] number of each sentence in the data set; repeated for each row, if
                    ///< dropout is the same for all words of a sentence
  const PhiloxKey* dropout_keys = nullptr;  ///< Of the layout's dropouts, in the backend's memory.
  std::uint64_t batch_key = 0;              ///< Equal for batches of equal sizes in the same memory.
  BackwardProgress* backward = nullptr;     ///< Null unless the step has a backward pass.

  [[nodiscard]] Tensor value(std::size_t parameter) const { return parameters.value(parameter); }
  [[nodiscard]] Tensor gradient(std::size_t parameter) const { return parameters.gradient(parameter); }

  void drop(const Tensor& x, const Tensor& y, std::size_t dropout_index, std::int64_t first_position = 0,
            std::int64_t first_column = 0) const {
    drop(dropout.rate, x, y, dropout_index, first_position, first_column);
  }
  void drop(double rate, const Tensor& x, const Tensor& y, std::size_t dropout_index,
            std::int64_t first_position = 0, std::int64_t first_column = 0) const {
    // Null where memory is only counted.
    const PhiloxKey* const key = dropout_keys == nullptr ? nullptr : dropout_keys + dropout_index;
    // With a sample for each row, all rows have position 0.
    if (dropout.per_sentence) {
      backend.dropout(x, y, key, rate, samples.range(0, x.rows), 0, first_column);
    } else {
      backend.dropout(x, y, key, rate, samples, first_position, first_column);
    }
  }
  /// Runs a part of a layer's work that is the same for all batches of equal sizes, and equal `more`; see
  /// `Backend::replay`. Gradients are final after it, because nothing can be told while it is replayed.
  /// `layer`: its number in the layout, or 0 for a model's own work. (An address would be that of another
  /// layer when a network is made where one was.)
  template <typename Work>
  void replay(std::size_t layer, int part, const Work& work, std::uint64_t more = 0) const {
    WorkKey key{batch_key, layer};
    key.part = mixed(mixed(key.part, static_cast<std::uint64_t>(part)), more);
    if (backward == nullptr || !backend.records()) return backend.replay(key, std::cref(work));
    std::vector<std::size_t>& added = backward->added[{layer, part}];
    std::vector<std::size_t>* const around = backward->inside;
    const auto listing = [&] {
      added.clear();
      backward->inside = &added;
      work();
    };
    backend.replay(key, std::cref(listing));
    backward->inside = around;
    for (const std::size_t parameter : added) added_gradient(parameter);
  }
  /// A layer has added its part of the parameter's gradient.
  void added_gradient(std::size_t parameter) const {
    if (backward->inside != nullptr) return backward->inside->push_back(parameter);
    if (--backward->missing[parameter] == 0) (*backward->ready)(parameter);
  }
};

}  // namespace nmt
