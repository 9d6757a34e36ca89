#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "nmt_example/backend/backend.hpp"

/// Kernels around a library's LSTM layer, which reads all sentences forwards and over all steps. Launch
/// errors are left for cudaGetLastError.
namespace nmt::cuda {

/// The order in which a layer reads each sentence's steps. Place p of sentence b is row p * batch + b of a
/// sequence in reading order, in which sentences begin at place 0, whichever way the layer reads.
struct ReadingOrder {
  const std::int32_t* lengths;  ///< Null: all sentences have `steps`.
  std::int64_t steps, batch;
  bool backwards;

  explicit ReadingOrder(const Backend::LstmLayer& layer)
      : lengths(layer.lengths.size != 0 ? layer.lengths.data : nullptr),
        steps(layer.gates.rows / (layer.h.rows - layer.gates.rows)),
        batch(layer.h.rows - layer.gates.rows),
        backwards(layer.reads_backwards) {}

  [[nodiscard]] constexpr std::int64_t length(std::int64_t sentence) const {
    return lengths != nullptr ? lengths[sentence] : steps;
  }
  /// The step of a place, and the place of a step, below the sentence's length.
  [[nodiscard]] constexpr std::int64_t turned(std::int64_t sentence, std::int64_t index) const {
    return backwards ? length(sentence) - 1 - index : index;
  }
};

/// A gate's input at which it is 1; it is 0 at the opposite.
inline constexpr float gate_limit = 1e4f;

/// A layer's weights in the order of a library: for each of our gates a matrix [units, columns] for the
/// input, one [units, units] for h, and a bias. The first of the columns beyond the input's is 1 beyond a
/// sentence's end, and closes the input gate and opens the forget gate, so that c stays.
struct PackedLstm {
  Tensor input[4], recurrent[4], bias[4];
};

void pack_lstm(cudaStream_t stream, const Backend::LstmLayer& layer, const PackedLstm& to);
/// kernel += from, bias += from
void add_packed_lstm(cudaStream_t stream, const PackedLstm& from, const Tensor& kernel, const Tensor& bias);

/// to = x in reading order, with `PackedLstm`'s further columns.
void gather_lstm_input(cudaStream_t stream, const ReadingOrder& order, const Tensor& x, const Tensor& to);
/// From y in reading order: the layer's states h after steps, and its output (may be empty).
void scatter_lstm_output(cudaStream_t stream, const ReadingOrder& order, const Tensor& y, const Tensor& h,
                         const Tensor& output);
/// to = d_output in reading order, with d_h added where each sentence ends.
void gather_lstm_gradient(cudaStream_t stream, const ReadingOrder& order, const Tensor& d_output,
                          const Tensor& d_h, const Tensor& to);
/// d_x from the gradient of `gather_lstm_input`'s result.
void scatter_lstm_gradient(cudaStream_t stream, const ReadingOrder& order, const Tensor& d_read,
                           const Tensor& d_x);
/// d_h = d_first, but for sentences without steps.
void take_first_gradient(cudaStream_t stream, const ReadingOrder& order, const Tensor& d_first,
                         const Tensor& d_h);

}  // namespace nmt::cuda
