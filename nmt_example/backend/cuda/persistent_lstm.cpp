#include "nmt_example/backend/cuda/persistent_lstm.hpp"

#include <fmt/format.h>

#include "ddl/error.hpp"
#include "nmt_example/backend/cuda/check.hpp"
#include "nmt_example/backend/cuda/lstm_layers.hpp"
#include "nmt_example/backend/cuda/memory.hpp"
#include "nmt_example/backend/cuda/room.hpp"

namespace nmt::cuda {
namespace {

class PersistentLstm final : public LstmLayers {
 public:
  PersistentLstm(Backend& backend, const PersistentPlan& plan, std::int64_t units, ddl::DataType type)
      : backend_(backend),
        stream_(backend.stream()),
        plan_(plan),
        units_(units),
        type_(type),
        room_(stream_) {}

  bool forward(const Backend::LstmLayer& layer) override {
    const std::int64_t batch = layer.h.rows - layer.gates.rows, units = layer.h.cols;
    if (layer.gates.empty() || layer.x.cols == 0 || units != units_ || layer.h.type != type_) return false;
    backend_.multiply(layer.x, Transpose::no, layer.kernel.row_range(0, layer.x.cols), false, layer.gates);
    const PersistentMemory memory = clean(batch, units, 0);
    backend_.copy(layer.h.row_range(layer.reads_backwards ? layer.gates.rows : 0, batch),
                  {memory.exchange, batch, units, units, layer.h.type});
    persistent_lstm_forward(stream_, plan_, layer, memory);
    check(cudaGetLastError(), "lstm_layer_forward");
    return true;
  }

  void backward(const Backend::LstmLayer& layer, const Backend::LstmLayerBackward& gradients) override {
    const std::int64_t batch = layer.h.rows - layer.gates.rows, units = layer.h.cols, inputs = layer.x.cols;
    persistent_lstm_backward(stream_, plan_, layer, gradients, clean(batch, 4 * units, batch * units));
    check(cudaGetLastError(), "lstm_layer_backward");
    const Tensor before = layer.h.row_range(layer.reads_backwards ? batch : 0, layer.gates.rows);
    const Tensor d_kernel = gradients.d_kernel;
    backend_.gemm(Transpose::yes, Transpose::no, layer.x, layer.gates, true, d_kernel.row_range(0, inputs));
    backend_.gemm(Transpose::yes, Transpose::no, before, layer.gates, true,
                  d_kernel.row_range(inputs, units));
    backend_.add_column_sums(layer.gates, gradients.d_bias);
    if (gradients.d_x.empty()) return;
    backend_.multiply(layer.gates, Transpose::yes, layer.kernel.row_range(0, inputs), false, gradients.d_x);
  }

  void parameters_changed() override {}

 private:
  /// `columns`: of what is exchanged.
  PersistentMemory clean(std::int64_t batch, std::int64_t columns, std::int64_t states) {
    room_.begin();
    const std::size_t exchange_bytes = persistent_exchange_bytes(batch, columns);
    const PersistentMemory memory{
        room_.take(exchange_bytes),
        static_cast<float*>(room_.take(static_cast<std::size_t>(states) * sizeof(float))),
        static_cast<unsigned*>(room_.take(sizeof(unsigned)))};
    check(cudaMemsetAsync(memory.exchange, 0, exchange_bytes, stream_), "cudaMemsetAsync");
    check(cudaMemsetAsync(memory.arrived, 0, sizeof(unsigned), stream_), "cudaMemsetAsync");
    return memory;
  }

  Backend& backend_;
  cudaStream_t stream_;
  PersistentPlan plan_;
  std::int64_t units_;
  ddl::DataType type_;
  Room room_;
};

}  // namespace

std::unique_ptr<LstmLayers> make_persistent_lstm(Backend& backend, std::int64_t units, ddl::DataType type) {
  const auto refuse = [](const std::string& why) {
    throw ddl::Error(ddl::ErrorCode::unsupported, "--rnn=persistent: " + why);
  };
  if (type == ddl::DataType::f32) refuse("needs --dtype=mixed");
  const PersistentPlan plan = persistent_plan(units, type);
  if (plan.slice == 0) {
    refuse(
        fmt::format("the recurrent weights of {} units do not fit into this device's shared memory, or {} "
                    "is no multiple of 16; use --rnn=auto",
                    units, units));
  }
  return std::make_unique<PersistentLstm>(backend, plan, units, type);
}

}  // namespace nmt::cuda
