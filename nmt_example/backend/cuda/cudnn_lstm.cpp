#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nmt_example/backend/cuda/check.hpp"
#include "nmt_example/backend/cuda/cudnn_objects.hpp"
#include "nmt_example/backend/cuda/kernels.hpp"
#include "nmt_example/backend/cuda/lstm_layer_kernels.hpp"
#include "nmt_example/backend/cuda/lstm_layers.hpp"
#include "nmt_example/backend/cuda/memory.hpp"
#include "nmt_example/backend/cuda/room.hpp"

namespace nmt::cuda {
namespace {

/// A layer as cuDNN sees it.
struct Sizes {
  std::int64_t steps, batch, units, columns;
  ddl::DataType type;

  Sizes(const ReadingOrder& order, const Backend::LstmLayer& layer)
      : steps(order.steps),
        batch(order.batch),
        units(layer.h.cols),
        columns((layer.x.cols + (order.lengths != nullptr ? 1 : 0) + 7) / 8 * 8),
        type(layer.x.type) {}
  [[nodiscard]] std::int64_t rows() const { return steps * batch; }
};

/// cuDNN computes layers that read all steps of all sentences forwards. The kernels around it put each
/// sentence into the order in which the layer reads it, and a further column of the input keeps its state
/// beyond its end. So cuDNN's persistent kernels, too, may compute sentences of any lengths, which the host
/// need not know.
class CudnnLstm final : public LstmLayers {
 public:
  CudnnLstm(cudaStream_t stream, bool tf32) : math_(tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH) {
    check(cudnn_.set_dropout(no_dropout_, on(stream).handle, 0.0f, nullptr, 0, 0),
          "cudnnSetDropoutDescriptor");
  }

  bool forward(cudaStream_t stream, const Backend::LstmLayer& layer) override {
    if (layer.gates.empty() || layer.x.cols == 0) return false;
    Queue& queue = on(stream);
    const ReadingOrder order(layer);
    const Sizes sizes(order, layer);
    const Weights& weights = packed(queue, layer, sizes);
    const auto [work_bytes, reserve_bytes] = describe(queue, weights, sizes, layer.backward_follows);
    Saved& saved = layer.backward_follows ? saved_for(layer) : queue.unsaved;
    saved.room.begin(stream);
    saved.reserve = saved.room.take(reserve_bytes);
    saved.x = saved.room.take(sizes.rows(), sizes.columns, sizes.type);
    saved.y = saved.room.take(sizes.rows(), sizes.units, sizes.type);
    saved.first_h = saved.room.take(sizes.batch, sizes.units, sizes.type);
    saved.first_c = saved.room.take(sizes.batch, sizes.units, sizes.type);
    Room& room = queue.room;
    room.begin(stream);
    void* const work = room.take(work_bytes);
    const Tensor last_h = room.take(sizes.batch, sizes.units, sizes.type);
    const Tensor last_c = room.take(sizes.batch, sizes.units, sizes.type);

    const std::int64_t first = layer.reads_backwards ? sizes.rows() : 0;
    convert(stream, layer.h.row_range(first, sizes.batch), saved.first_h);
    convert(stream, layer.c.row_range(first, sizes.batch), saved.first_c);
    gather_lstm_input(stream, order, layer.x, saved.x);
    check(cudnn_.forward(queue.handle, weights.rnn, mode(layer.backward_follows), nullptr, x_, saved.x.data,
                         y_, saved.y.data, states_, saved.first_h.data, last_h.data, states_,
                         saved.first_c.data, last_c.data, weights.bytes, weights.values.get(), work_bytes,
                         work, reserve_bytes, saved.reserve),
          "cudnnRNNForward");
    scatter_lstm_output(stream, order, saved.y, layer.h, layer.output);
    convert(stream, last_c, layer.c.row_range(sizes.rows() - first, sizes.batch));
    check(cudaGetLastError(), "lstm_layer_forward");
    return true;
  }

  void backward(cudaStream_t stream, const Backend::LstmLayer& layer,
                const Backend::LstmLayerBackward& gradients) override {
    Queue& queue = on(stream);
    const ReadingOrder order(layer);
    const Sizes sizes(order, layer);
    const Weights& weights = packed(queue, layer, sizes);
    const auto [work_bytes, reserve_bytes] = describe(queue, weights, sizes, true);
    const auto node = saved_.extract(layer.gates.data);
    Saved& saved = node.mapped();
    Room& room = queue.room;
    room.begin(stream);
    void* const work = room.take(work_bytes);
    const Tensor d_y = room.take(sizes.rows(), sizes.units, sizes.type);
    const Tensor d_x = room.take(sizes.rows(), sizes.columns, sizes.type);
    const Tensor d_last_h = room.take(sizes.batch, sizes.units, sizes.type);
    const Tensor d_last_c = room.take(sizes.batch, sizes.units, sizes.type);
    const Tensor d_first_h = room.take(sizes.batch, sizes.units, sizes.type);
    const Tensor d_first_c = room.take(sizes.batch, sizes.units, sizes.type);
    void* const d_weights = room.take(weights.bytes);

    gather_lstm_gradient(stream, order, gradients.d_output, gradients.d_h, d_y);
    zero(stream, d_last_h.data, static_cast<std::size_t>(d_last_h.size()) * ddl::size_of(sizes.type));
    convert(stream, gradients.d_c, d_last_c);
    check(cudnn_.backward_data(queue.handle, weights.rnn, nullptr, y_, saved.y.data, d_y.data, x_, d_x.data,
                               states_, saved.first_h.data, d_last_h.data, d_first_h.data, states_,
                               saved.first_c.data, d_last_c.data, d_first_c.data, weights.bytes,
                               weights.values.get(), work_bytes, work, reserve_bytes, saved.reserve),
          "cudnnRNNBackwardData_v8");
    zero(stream, d_weights, weights.bytes);
    check(cudnn_.backward_weights(queue.handle, weights.rnn, CUDNN_WGRAD_MODE_ADD, nullptr, x_, saved.x.data,
                                  states_, saved.first_h.data, y_, saved.y.data, weights.bytes, d_weights,
                                  work_bytes, work, reserve_bytes, saved.reserve),
          "cudnnRNNBackwardWeights_v8");
    add_packed_lstm(stream, matrices(queue, weights, sizes, d_weights), gradients.d_kernel, gradients.d_bias);
    take_first_gradient(stream, order, d_first_h, gradients.d_h);
    convert(stream, d_first_c, gradients.d_c);
    if (!gradients.d_x.empty()) scatter_lstm_gradient(stream, order, d_x, gradients.d_x);
    check(cudaGetLastError(), "lstm_layer_backward");
    unused_.push_back(std::move(saved));
  }

  void parameters_changed() override { ++state_of_parameters_; }

 private:
  /// A layer's weights in cuDNN's order, packed when the parameters had a certain state.
  struct Weights {
    RnnDescriptor rnn = {};
    std::size_t bytes = 0;
    std::shared_ptr<void> values = {};
    std::uint64_t state = 0;
    std::int64_t columns = 0;
    ddl::DataType type = ddl::DataType::f32;
  };
  /// What a forward pass leaves to its backward pass.
  struct Saved {
    Room room;
    Tensor x, y, first_h, first_c;
    void* reserve = nullptr;
  };
  /// What layers need that are computed beside others on another stream.
  struct Queue {
    cudaStream_t stream = nullptr;
    Handle handle = {};
    Room room = {};
    Saved unsaved = {};  // of forward passes that no backward pass follows
  };
  struct Bytes {
    std::size_t work = 0, reserve = 0;
  };

  Queue& on(cudaStream_t stream) {
    Queue& queue = queues_[stream];
    if (queue.stream == nullptr) {
      check(cudnn_.set_stream(queue.handle, stream), "cudnnSetStream");
      queue.stream = stream;
    }
    return queue;
  }

  static cudnnDataType_t cudnn_type(ddl::DataType type) {
    return type == ddl::DataType::f32    ? CUDNN_DATA_FLOAT
           : type == ddl::DataType::bf16 ? CUDNN_DATA_BFLOAT16
                                         : CUDNN_DATA_HALF;
  }
  static cudnnForwardMode_t mode(bool backward_follows) {
    return backward_follows ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE;
  }

  Saved& saved_for(const Backend::LstmLayer& layer) {
    const auto [place, is_new] = saved_.try_emplace(layer.gates.data);
    if (is_new && !unused_.empty()) {
      place->second = std::move(unused_.back());
      unused_.pop_back();
    }
    return place->second;
  }

  const Weights& packed(Queue& queue, const Backend::LstmLayer& layer, const Sizes& sizes) {
    Weights& weights = weights_[layer.kernel.data];
    if (weights.columns != sizes.columns || weights.type != sizes.type) {
      weights.columns = sizes.columns;
      weights.type = sizes.type;
      weights.state = 0;
      check(
          cudnn_.set_rnn(weights.rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
                         CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, cudnn_type(sizes.type), CUDNN_DATA_FLOAT,
                         sizes.type == ddl::DataType::f32 ? math_ : CUDNN_TENSOR_OP_MATH,
                         static_cast<std::int32_t>(sizes.columns), static_cast<std::int32_t>(sizes.units),
                         static_cast<std::int32_t>(sizes.units), 1, no_dropout_, CUDNN_RNN_PADDED_IO_ENABLED),
          "cudnnSetRNNDescriptor_v8");
      check(cudnn_.weight_bytes(queue.handle, weights.rnn, &weights.bytes), "cudnnGetRNNWeightSpaceSize");
      weights.values.reset();
      weights.values = allocate_device(weights.bytes, queue.stream);  // zeros: the second bias stays so
    }
    if (weights.state != state_of_parameters_) {
      pack_lstm(queue.stream, layer, matrices(queue, weights, sizes, weights.values.get()));
      weights.state = state_of_parameters_;
    }
    return weights;
  }

  PackedLstm matrices(Queue& queue, const Weights& weights, const Sizes& sizes, void* values) {
    PackedLstm packed;
    const auto find = [&](int layer, std::int64_t columns, Tensor& matrix, Tensor& bias) {
      matrix = {nullptr, sizes.units, columns, columns, sizes.type};
      bias = {nullptr, 1, sizes.units, sizes.units, sizes.type};
      check(cudnn_.weights(queue.handle, weights.rnn, 0, weights.bytes, values, layer, matrix_, &matrix.data,
                           bias_, &bias.data),
            "cudnnGetRNNWeightParams");
    };
    constexpr std::array gates = {0, 2, 1, 3};  // cuDNN's numbers of i, j, f and o
    Tensor second_bias;
    for (std::size_t g = 0; g < 4; ++g) {
      find(gates[g], sizes.columns, packed.input[g], packed.bias[g]);
      find(4 + gates[g], sizes.units, packed.recurrent[g], second_bias);
    }
    return packed;
  }

  /// Describes the layer's tensors; returns how much memory cuDNN needs.
  Bytes describe(Queue& queue, const Weights& weights, const Sizes& sizes, bool backward_follows) {
    const auto steps = static_cast<int>(sizes.steps), batch = static_cast<int>(sizes.batch),
               units = static_cast<int>(sizes.units);
    lengths_.assign(static_cast<std::size_t>(batch), steps);
    for (const auto& [data, columns] :
         {std::pair(cudnnRNNDataDescriptor_t(x_), static_cast<int>(sizes.columns)),
          std::pair(cudnnRNNDataDescriptor_t(y_), units)}) {
      check(cudnn_.set_data(data, cudnn_type(sizes.type), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, steps,
                            batch, columns, lengths_.data(), nullptr),
            "cudnnSetRNNDataDescriptor");
    }
    const std::array dimensions = {1, batch, units}, strides = {batch * units, units, 1};
    check(cudnn_.set_tensor(states_, cudnn_type(sizes.type), 3, dimensions.data(), strides.data()),
          "cudnnSetTensorNdDescriptor");
    Bytes bytes;
    check(
        cudnn_.work_bytes(queue.handle, weights.rnn, mode(backward_follows), x_, &bytes.work, &bytes.reserve),
        "cudnnGetRNNTempSpaceSizes");
    return bytes;
  }

  static void zero(cudaStream_t stream, void* memory, std::size_t bytes) {
    check(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");
  }

  const CudnnLibrary& cudnn_ = CudnnLibrary::get();
  cudnnMathType_t math_;  // of fp32
  std::unordered_map<cudaStream_t, Queue> queues_;
  DropoutDescriptor no_dropout_;
  DataDescriptor x_, y_;
  TensorDescriptor states_, matrix_, bias_;
  std::vector<int> lengths_;
  std::unordered_map<const void*, Saved> saved_;  // by the layer's gates
  std::vector<Saved> unused_;
  std::unordered_map<const void*, Weights> weights_;  // by kernel
  std::uint64_t state_of_parameters_ = 1;
};

}  // namespace

std::unique_ptr<LstmLayers> make_cudnn_lstm(cudaStream_t stream, bool tf32) {
  return std::make_unique<CudnnLstm>(stream, tf32);
}

}  // namespace nmt::cuda
