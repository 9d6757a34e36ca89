#include "nmt_example/model/decoder.hpp"

#include "nmt_example/model/decoders.hpp"

namespace nmt {

TargetEmbedding::TargetEmbedding(const ParameterSet& parameters, const ModelShape& shape)
    : index(parameters.layout().index_of(shape.share_vocabulary ? "embedding/shared" : "embedding/decoder")),
      shared(shape.share_vocabulary),
      table(parameters.value(index)),
      d_table(parameters.gradient(index)) {}

void zero_final_state_gradients(const StepContext& step, Encoder& encoder) {
  for (int layer = 0; layer < encoder.layers(); ++layer) {
    step.backend.zero(encoder.d_final_h(layer));
    step.backend.zero(encoder.d_final_c(layer));
  }
}

void SearchState::plan(Arena& arena, std::size_t layers, std::int64_t rows, std::int64_t first_input,
                       std::int64_t units) {
  for (auto* tensors : {&input, &other_input}) {
    tensors->resize(layers);
    for (std::size_t l = 0; l < layers; ++l) {
      (*tensors)[l] = arena.take(rows, (l == 0 ? first_input : units) + units);
    }
  }
  for (auto* tensors : {&cell, &other_cell}) {
    tensors->resize(layers);
    for (Tensor& tensor : *tensors) tensor = arena.take(rows, units);
  }
  gates = arena.take(rows, 4 * units);
  tanh_c = arena.take(rows, units);
}

void SearchState::start(const StepContext& step, Encoder* encoder, const Indices& beam_rows) {
  for (std::size_t l = 0; l < input.size(); ++l) {
    step.backend.zero(input[l]);
    if (encoder != nullptr) {
      step.backend.gather_rows(encoder->final_h(static_cast<int>(l)), beam_rows, hidden(l));
      step.backend.gather_rows(encoder->final_c(static_cast<int>(l)), beam_rows, cell[l]);
    } else {
      step.backend.zero(cell[l]);
    }
  }
}

void SearchState::select(const StepContext& step, const Indices& parents) {
  for (std::size_t l = 0; l < input.size(); ++l) {
    step.backend.gather_rows(input[l], parents, other_input[l]);
    step.backend.gather_rows(cell[l], parents, other_cell[l]);
  }
  input.swap(other_input);
  cell.swap(other_cell);
}

void SearchState::advance(const StepContext& step, std::size_t layer, const Tensor& kernel,
                          const Tensor& bias, double forget_bias) {
  step.backend.gemm(Transpose::no, Transpose::no, input[layer], kernel, false, gates);
  step.backend.lstm_cell_forward({.gates = gates,
                                  .bias = bias,
                                  .c_prev = cell[layer],
                                  .h_prev = hidden(layer),
                                  .c = cell[layer],
                                  .h = hidden(layer),
                                  .tanh_c = tanh_c,
                                  .output = {},
                                  .lengths = {},
                                  .step = 0,
                                  .forget_bias = forget_bias});
}

std::unique_ptr<Decoder> make_decoder(const ParameterSet& parameters, const ModelShape& shape) {
  if (shape.has_attention()) return std::make_unique<AttentionDecoder>(parameters, shape);
  return std::make_unique<PlainDecoder>(parameters, shape);
}

}  // namespace nmt
