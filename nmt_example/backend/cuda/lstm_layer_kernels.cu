#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/lstm_layer_kernels.hpp"

namespace nmt::cuda {

namespace {

/// A view of each of a layer's packed weights.
struct PackedViews {
  View input[4], recurrent[4], bias[4];
  explicit PackedViews(const PackedLstm& w)
      : input{w.input[0], w.input[1], w.input[2], w.input[3]},
        recurrent{w.recurrent[0], w.recurrent[1], w.recurrent[2], w.recurrent[3]},
        bias{w.bias[0], w.bias[1], w.bias[2], w.bias[3]} {}
};

}  // namespace

void pack_lstm(cudaStream_t stream, const Backend::LstmLayer& layer, const PackedLstm& weights) {
  const View kernel = layer.kernel;
  const PackedViews to(weights);
  const Index columns = weights.input[0].cols;
  const float* const bias = layer.bias.as<float>();
  const Index units = kernel.cols / 4, inputs = kernel.rows - units;
  const auto forget_bias = static_cast<float>(layer.forget_bias);
  for_each(stream, columns + units + 1, kernel.cols, [=] __device__(Index k, Index column) {
    const Index gate = column / units, unit = column % units;
    const bool forgets = gate == 2;
    if (k < inputs) {
      to.input[gate].set(unit, k, kernel(k, column));
    } else if (k < columns) {
      const bool keeps = k == inputs && (gate == 0 || forgets);
      to.input[gate].set(unit, k, !keeps ? 0.0f : forgets ? gate_limit : -gate_limit);
    } else if (k < columns + units) {
      to.recurrent[gate].set(unit, k - columns, kernel(inputs + k - columns, column));
    } else {
      to.bias[gate].set(0, unit, bias[column] + (forgets ? forget_bias : 0.0f));
    }
  });
}

void add_packed_lstm(cudaStream_t stream, const PackedLstm& weights, const Tensor& to_kernel,
                     const Tensor& to_bias) {
  const View kernel = to_kernel, bias = to_bias;
  const PackedViews from(weights);
  const Index units = kernel.cols / 4, inputs = kernel.rows - units;
  for_each(stream, kernel.rows + 1, kernel.cols, [=] __device__(Index k, Index column) {
    const Index gate = column / units, unit = column % units;
    if (k < inputs) {
      kernel.set(k, column, kernel(k, column) + from.input[gate](unit, k));
    } else if (k < kernel.rows) {
      kernel.set(k, column, kernel(k, column) + from.recurrent[gate](unit, k - inputs));
    } else {
      bias.set(0, column, bias(0, column) + from.bias[gate](0, unit));
    }
  });
}

void gather_lstm_input(cudaStream_t stream, const ReadingOrder& order, const Tensor& x, const Tensor& to) {
  const View from = x, read = to;
  for_each(stream, to.rows, to.cols, [=] __device__(Index r, Index c) {
    const Index place = r / order.batch, b = r % order.batch;
    if (place >= order.length(b)) {
      read.set(r, c, c == from.cols ? 1.0f : 0.0f);
    } else {
      read.set(r, c, c < from.cols ? from(order.turned(b, place) * order.batch + b, c) : 0.0f);
    }
  });
}

void scatter_lstm_output(cudaStream_t stream, const ReadingOrder& order, const Tensor& y, const Tensor& h,
                         const Tensor& output) {
  const View from = y, states = h, out = output;
  for_each(stream, y.rows, y.cols, [=] __device__(Index r, Index c) {
    const Index step = r / order.batch, b = r % order.batch, length = order.length(b);
    const bool masked = step >= length;
    float state = 0;
    if (!masked) {
      state = from(order.turned(b, step) * order.batch + b, c);
    } else if (order.backwards || length == 0) {
      state = states((order.backwards ? order.steps : 0) * order.batch + b, c);
    } else {
      state = from((length - 1) * order.batch + b, c);
    }
    states.set((order.backwards ? step : step + 1) * order.batch + b, c, state);
    if (out.data != nullptr) out.set(r, c, masked ? 0.0f : state);
  });
}

void gather_lstm_gradient(cudaStream_t stream, const ReadingOrder& order, const Tensor& d_output,
                          const Tensor& d_h, const Tensor& to) {
  const View from = d_output, last = d_h, read = to;
  for_each(stream, to.rows, to.cols, [=] __device__(Index r, Index c) {
    const Index place = r / order.batch, b = r % order.batch, length = order.length(b);
    float gradient = place < length ? from(order.turned(b, place) * order.batch + b, c) : 0.0f;
    if (place == length - 1) gradient += last(b, c);
    read.set(r, c, gradient);
  });
}

void scatter_lstm_gradient(cudaStream_t stream, const ReadingOrder& order, const Tensor& d_read,
                           const Tensor& d_x) {
  const View from = d_read, to = d_x;
  for_each(stream, d_x.rows, d_x.cols, [=] __device__(Index r, Index c) {
    const Index step = r / order.batch, b = r % order.batch;
    to.set(r, c, step < order.length(b) ? from(order.turned(b, step) * order.batch + b, c) : 0.0f);
  });
}

void take_first_gradient(cudaStream_t stream, const ReadingOrder& order, const Tensor& d_first,
                         const Tensor& d_h) {
  const View from = d_first, to = d_h;
  for_each(stream, d_h.rows, d_h.cols, [=] __device__(Index b, Index c) {
    if (order.length(b) > 0) to.set(b, c, from(b, c));
  });
}

}  // namespace nmt::cuda
