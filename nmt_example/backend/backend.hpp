#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "nmt_example/backend/layer_rules.hpp"
#include "nmt_example/backend/philox.hpp"
#include "nmt_example/backend/step_rules.hpp"
#include "nmt_example/backend/tensor.hpp"
#include "nmt_example/options/choices.hpp"

struct CUstream_st;

namespace nmt {

enum class Transpose : bool { no, yes };

/// An attention over a batch of sources. Query row r belongs to sentence `sentence_of_row[r]`, as in a
/// search; without these (size 0), to r % sentences.
struct AttentionShape {
  std::int64_t sentences = 0;
  std::int64_t source_steps = 0;
  Indices sentence_of_row = {};
};

/// How a query and a key give a score: scale * query . key, where an empty scale is 1; or, with `v` [1,
/// units], v . tanh(query + key).
struct AttentionScore {
  Tensor scale = {}, v = {};
};

/// What an update does to every element, given its gradient g times `gradient_scale`; the formulas are in
/// update_rules.hpp. With weight decay, sgd, momentum and nesterov add that share of the parameter to the
/// gradient; adam and lamb_step, to the step (Loshchilov and Hutter 2019).
enum class UpdateRule : std::uint8_t {
  norms,         ///< Measures parameters and gradients (without `gradient_scale`), and changes nothing.
  sgd,           ///< parameter -= learning_rate g
  momentum,      ///< m = beta1 m + g; parameter -= learning_rate m
  nesterov,      ///< The same m; parameter -= learning_rate (g + beta1 m)
  adam,          ///< Kingma and Ba 2015, with bias correction.
  lamb_moments,  ///< Adam's m and v; measures parameters and the directions in which `lamb_step` moves.
  lamb_step,     ///< Moves by m and v as they are; reads no gradient.
};

/// What a rule works on: [1, elements] without gaps; a rule leaves empty what it does not have.
struct UpdateTensors {
  Tensor values, gradients;  ///< Of one size.
  Tensor m, v;               ///< Of one size.
  /// [layers, 2] f64 without gaps: a rule that measures adds sums of squares, of each layer's parameters and
  /// of what else it measures.
  Tensor sums = {};
};

/// Consecutive elements of a layer.
struct UpdateRange {
  std::int64_t first = 0, count = 0;  ///< Of `values` and `gradients`.
  std::int64_t moment = 0;            ///< The first of its elements in `m` and `v`.
  std::int32_t layer = 0;             ///< Its row of `sums`, and its index in `UpdateSettings::layers`.
  bool decays = true;                 ///< Whether weight decay is for it.
  double sums_share = 1;              ///< The factor of what is added to the sums.
};

struct UpdateSettings {
  /// In the backend's memory: replaces `learning_rate`, `gradient_scale` and `step`. A step that is not taken
  /// changes nothing but `zero_gradients`.
  const StepFactors* factors = nullptr;
  const Layer* layers = nullptr;  ///< The same, with factors for each layer.
  double learning_rate = 0;
  double gradient_scale = 1;
  double weight_decay = 0;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  std::int64_t step = 1;        ///< Counts from 1, for the bias correction.
  bool zero_gradients = false;  ///< Whether the gradients become zero.
};

/// The parts of cells' steps that are not matrix products; their formulas are in gru_rows.hpp and so on.
enum class CellOperation : std::uint8_t {
  gru_reset,
  gru_output,
  gru_output_backward,
  gru_reset_backward,
  layer_norm_lstm,
  layer_norm_lstm_backward,
  nas,
  nas_backward,
};

/// What a cell operation works on; a cell leaves empty what its operation does not have. A row b with step >=
/// lengths[b] is masked: forward keeps its state and sets its output to 0; backward keeps its state's
/// gradient and sets `gates`, `saved` and `scratch` to 0. Without lengths (size 0) no row is masked.
/// `scratch`, `bias`, `gain`, `c_before`, `c` and `d_c` have the backend's type, all others one type.
struct CellRows {
  std::int64_t units = 0;
  Tensor gates = {}, saved = {}, scratch = {};                       ///< [rows, ...]
  Tensor bias = {}, gain = {};                                       ///< [1, ...] parameters
  Tensor h_before = {}, c_before = {}, h = {}, c = {}, output = {};  ///< [rows, units]
  Tensor d_output = {}, d_h = {}, d_c = {};                          ///< [rows, units]
  Indices lengths = {};
  std::int64_t step = 0;
  double forget_bias = 0;
};

/// Names work that is done again and again.
struct WorkKey {
  std::uint64_t group = 0;
  std::uint64_t part = 0;
  /// All ranks give such keys in the same order, and their backends forget such work alike: it may contain
  /// collectives.
  bool of_all_ranks = false;
};

/// The computations that a model is made of, in the memory of one device. Every layer is written once against
/// this interface. `cpu` computes in fp32 on oneDNN; `cuda` on cuBLAS and kernels of its own;
/// `reference` in fp64 with plain loops, as the oracle of tests. Tensors of one call have the backend's type
/// unless said otherwise; only assertions check shapes. Calls may be asynchronous; `download` waits. Not
/// thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// The type of parameters and activations.
  [[nodiscard]] virtual ddl::DataType type() const = 0;
  /// The type that layers keep and multiply in mixed precision, and that parameters' gradients may have then;
  /// `type()` if there is no narrower one.
  [[nodiscard]] virtual ddl::DataType narrow_type() const { return type(); }
  /// Whether its memory is the host's, so that the host may access a tensor's data directly.
  [[nodiscard]] virtual bool host_accessible() const { return true; }
  /// The CUDA stream on which its work is queued, in order; null for host backends.
  [[nodiscard]] virtual CUstream_st* stream() const { return nullptr; }

  /// Runs `work`, whose calls of this backend are the same, with the same arguments, whenever it is given
  /// with this key. A backend may record them, and later do them again without running `work`. It forgets
  /// the work of a group together: where all of it is given each time, all of it runs or none.
  virtual void replay(const WorkKey& /*key*/, const std::function<void()>& work) { work(); }
  /// Does both, neither of which depends on the other: `second` after `first`, or beside it.
  virtual void side_by_side(const std::function<void()>& first, const std::function<void()>& second) {
    first();
    second();
  }
  /// Does work(layer, chunk) for all, each after the same chunk of the layer before and after the layer's
  /// chunk before; a backend may do others beside it.
  virtual void wavefront(std::size_t layers, std::size_t chunks,
                         const std::function<void(std::size_t, std::size_t)>& work) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      for (std::size_t chunk = 0; chunk < chunks; ++chunk) work(layer, chunk);
    }
  }
  /// How many of `steps` steps make a chunk where layers that read each other's output could go through a
  /// `wavefront`: fewer than `steps` where that is faster than layer by layer.
  [[nodiscard]] virtual std::int64_t chunk_steps(std::int64_t steps) const { return steps; }
  /// Whether it records, so that keys should be few.
  [[nodiscard]] virtual bool records() const { return false; }

  // Memory --------------------------------------------------------------------------------------
  /// Zero-filled, aligned to 64 bytes.
  [[nodiscard]] virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Zero-filled host memory with which `upload` and `download` are fastest.
  [[nodiscard]] virtual std::shared_ptr<void> allocate_host(std::size_t bytes) {
    return std::shared_ptr<std::byte>(new std::byte[bytes](), std::default_delete<std::byte[]>());
  }
  /// `from` has no gaps between rows and may be overwritten after the call. Converts to `to`'s type.
  virtual void upload(const Tensor& to, std::span<const float> from) = 0;
  virtual void upload_bytes(void* to, std::span<const std::byte> from) = 0;
  void upload(const Indices& to, std::span<const std::int32_t> from) {
    assert(static_cast<std::int64_t>(from.size()) <= to.size);
    upload_bytes(to.data, std::as_bytes(from));
  }
  virtual void download(const Tensor& from, std::span<float> to) = 0;
  virtual void download(const Tensor& from, std::span<double> to) = 0;
  virtual void download_bytes(const void* from, std::span<std::byte> to) = 0;
  virtual void zero(const Tensor& x) = 0;
  virtual void copy(const Tensor& from, const Tensor& to) = 0;
  /// to += from
  virtual void add(const Tensor& from, const Tensor& to) = 0;
  /// to[i] = from[rows[i]]
  virtual void gather_rows(const Tensor& from, const Indices& rows, const Tensor& to) = 0;
  /// to[rows[i]] = from[i]; other rows of `to` keep their values.
  virtual void scatter_rows(const Tensor& from, const Indices& rows, const Tensor& to) = 0;
  /// x[i][j] = value for every j >= first but kept[i].
  virtual void fill_columns_but(const Tensor& x, std::int64_t first, const Indices& kept, double value) = 0;

  // Dense ---------------------------------------------------------------------------------------
  /// c = op(a) op(b) + (accumulate ? c : 0)
  virtual void gemm(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
                    const Tensor& c) = 0;
  /// c = a op(parameter) + (accumulate ? c : 0). `parameter` is one of a model's parameters, or some rows or
  /// columns of one: a backend may keep a copy that multiplies faster, until `parameters_changed`.
  virtual void multiply(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate,
                        const Tensor& c) {
    gemm(Transpose::no, tb, a, parameter, accumulate, c);
  }
  /// To be called when parameters have got other values, before the next `multiply`.
  virtual void parameters_changed() {}
  /// Memory of such copies, of as many as take turns within a step, and of the largest product.
  [[nodiscard]] virtual std::size_t product_bytes() const { return 0; }
  /// to[i] += row, [1, cols]
  virtual void add_row(const Tensor& row, const Tensor& to) = 0;
  /// to[0][j] += sum over rows of x[i][j], rounded once.
  virtual void add_column_sums(const Tensor& x, const Tensor& to) = 0;

  // Embedding -----------------------------------------------------------------------------------
  /// out[i] = table[ids[i]]
  void embedding_forward(const Tensor& table, const Indices& ids, const Tensor& out) {
    gather_rows(table, ids, out);
  }
  /// table_gradient[ids[i]] += gradient[i], in the order of i; each row is rounded once. `cuda` first sums
  /// the 65th to the 128th gradient of an id, the next 64 and so on, and adds these sums in their order.
  virtual void embedding_backward(const Tensor& gradient, const Indices& ids,
                                  const Tensor& table_gradient) = 0;

  // Dropout -------------------------------------------------------------------------------------
  /// y = dropped(x) / (1 - rate), the same for gradients. `key`: in the backend's memory. Row r is position
  /// first_position + r / batch of sample samples[r % batch], batch = samples.size; column j is column
  /// first_column + j (a multiple of 4) of the site. x and y may be the same. rate 0 copies.
  virtual void dropout(const Tensor& x, const Tensor& y, const PhiloxKey* key, double rate,
                       const Indices& samples, std::int64_t first_position, std::int64_t first_column) = 0;

  // LSTM ----------------------------------------------------------------------------------------
  /// How to compute whole layers from now on (not `automatic`); `lstm_layer_forward` returns false but with
  /// `cudnn`, and `chunk_steps` returns all steps but with `wavefront`. Returns empty, or changes nothing and
  /// returns why it cannot, and what to do.
  virtual std::string use_lstm(LstmMethod method) {
    return method == LstmMethod::loop ? "" : "only --device=cuda has other ways than --rnn=loop";
  }

  /// One step of cells [batch, units], gates in the order i, j, f, o (input, candidate, forget,
  /// output), as in TensorFlow's LSTMCell:
  ///   c = c_prev * sigmoid(f + forget_bias) + sigmoid(i) * tanh(j);  h = sigmoid(o) * tanh(c)
  /// `gates` [batch, 4 units] holds x Wx + h_prev Wh, or a part of that whose rest is in `products` of the
  /// backend's type, and gets the four activations; `bias` [1, 4 units] is added first. Rows b with step >=
  /// lengths[b] keep their state (h = h_prev, c = c_prev) and have output 0; without lengths (size 0) no row
  /// is masked. `tanh_c` [batch, units] is kept for backward. `output` [batch, units] is h or 0; may be
  /// empty. With `sources`, row b has row sources[b] of `products`, c_prev and h_prev, which then are those
  /// of fewer rows.
  struct LstmStep {
    Tensor gates, bias, c_prev, h_prev, c, h, tanh_c, output;
    Tensor products = {};
    Indices lengths, sources = {};
    std::int64_t step = 0;
    double forget_bias = 1.0;
  };
  virtual void lstm_cell_forward(const LstmStep& step) = 0;

  /// Backward pass of the same step. `gates` (activations) becomes the gradient of the pre-activations. The
  /// gradient of h is the sum of `d_output` (may be empty) and `d_h`. A masked row passes only d_h on to
  /// `d_h_prev` and d_c to d_c_prev, and has zero gates. For other rows `d_h_prev` is set to zero (the caller
  /// then adds gates * Wh^T). `d_c` is replaced by the gradient of c_prev. `d_h_prev` may be `d_h` itself, or
  /// empty if no row is masked.
  struct LstmStepBackward {
    Tensor gates, c_prev, tanh_c, d_output, d_h, d_h_prev, d_c;
    Indices lengths;
    std::int64_t step = 0;
  };
  virtual void lstm_cell_backward(const LstmStepBackward& step) = 0;

  /// A layer of the same cells over a whole sequence whose input is known ahead. Tensors are time-major.
  struct LstmLayer {
    Tensor x;       ///< [steps * batch, inputs]
    Tensor kernel;  ///< [inputs + units, 4 units], a parameter
    Tensor bias;    ///< [1, 4 units]
    Tensor gates;   ///< [steps * batch, 4 units]: for the backend's use.
    /// [(steps + 1) * batch, units]: h and c before and after steps; a layer that reads backwards goes from
    /// the last rows to the first. Those before the first step are set. Of c, the backend need not set those
    /// between the first step and the last.
    Tensor h, c;
    Tensor tanh_c;           ///< [steps * batch, units]: for the backend's use.
    Tensor output;           ///< [steps * batch, units]; may be empty
    Indices lengths;         ///< See `LstmStep`.
    bool from_zero = false;  ///< h before the first step is zero.
    bool reads_backwards = false;
    bool backward_follows = false;  ///< Whether `lstm_layer_backward` does.
    double forget_bias = 1.0;
  };
  /// What `gates = x Wx` and `lstm_cell_forward` for each step do. Returns false, having done nothing, if the
  /// backend has nothing faster for these sizes; the caller then goes step by step.
  virtual bool lstm_layer_forward(const LstmLayer&) { return false; }
  /// The backward pass of a layer whose `lstm_layer_forward` returned true. Nothing of `layer` has changed.
  struct LstmLayerBackward {
    Tensor d_output;          ///< [steps * batch, units]
    Tensor d_h, d_c;          ///< [batch, units]: after the last step; become those before the first.
    Tensor d_kernel, d_bias;  ///< To be added to.
    Tensor d_x;               ///< [steps * batch, inputs]: set, unless empty; may be `d_output`.
  };
  virtual void lstm_layer_backward(const LstmLayer&, const LstmLayerBackward&) {}

  // Other cells ---------------------------------------------------------------------------------
  virtual void cell_rows(CellOperation operation, const CellRows& rows) = 0;

  // Attention -----------------------------------------------------------------------------------
  /// weights[r] = softmax of the scores of query r and the keys s * sentences + sentence of r over s <
  /// lengths[sentence] (0 beyond); context[r] = sum_s weights[r][s] memory[s * sentences + sentence].
  /// query [R, units], keys [S * B, units], memory [S * B, depth], weights [R, S], context [R, depth].
  virtual void attention_forward(const AttentionShape& shape, const AttentionScore& score,
                                 const Tensor& query, const Tensor& keys, const Tensor& memory,
                                 const Indices& lengths, const Tensor& weights, const Tensor& context) = 0;
  /// From d_context: d_scores [R, S] (of the scores that the softmax sees) and d_query (both set, not added).
  virtual void attention_backward(const AttentionShape& shape, const AttentionScore& score,
                                  const Tensor& query, const Tensor& keys, const Tensor& memory,
                                  const Indices& lengths, const Tensor& weights, const Tensor& d_context,
                                  const Tensor& d_scores, const Tensor& d_query) = 0;
  /// The rest of the backward pass, for all target steps at once (R = steps * sentences rows): d_keys and
  /// d_memory = sum_t weights d_context (both set, zero beyond the lengths); adds to d_score.
  virtual void attention_memory_backward(const AttentionShape& shape, const AttentionScore& score,
                                         const Tensor& query, const Tensor& keys, const Indices& lengths,
                                         const Tensor& weights, const Tensor& d_scores,
                                         const Tensor& d_context, const Tensor& d_keys,
                                         const Tensor& d_memory, const AttentionScore& d_score) = 0;
  /// out = g v/|v|; v and out [1, n], g [1, 1].
  virtual void scaled_direction(const Tensor& v, const Tensor& g, const Tensor& out) = 0;
  /// Adds to d_v and d_g.
  virtual void scaled_direction_backward(const Tensor& v, const Tensor& g, const Tensor& d_out,
                                         const Tensor& d_v, const Tensor& d_g) = 0;

  // Loss ----------------------------------------------------------------------------------------
  /// How many rows of logits to compute at a time.
  [[nodiscard]] virtual std::int64_t logits_rows(std::int64_t vocabulary) const = 0;
  /// Rows of logits [N, V] and their targets. sums (two f64): sums[0] += sum of -log p(target),
  /// sums[1] += the smoothed loss sum of (1 - e) * -log p(target) + e * mean_v(-log p(v)).
  /// Sets `gradient`, if it has memory, to `scale` (in the backend's memory; null: 1) times the gradient of
  /// the smoothed loss; it may be the logits themselves, or a 16-bit tensor whose rows begin where theirs do.
  /// Logits are overwritten. A row with a negative target has no loss, and a gradient of zeros.
  virtual void softmax_cross_entropy(const Tensor& logits, const Indices& targets, double label_smoothing,
                                     const Tensor& gradient, const double* scale, const Tensor& sums) = 0;
  /// Rows become log-probabilities.
  virtual void log_softmax(const Tensor& logits) = 0;
  struct LogitsBlock {
    std::int64_t rows, columns;
  };
  /// How many rows and columns of logits to compute at a time for `best_log_softmax`, at most.
  [[nodiscard]] virtual LogitsBlock best_block() const {
    constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
    return {all, all};
  }
  /// What a search needs of `log_softmax`, without writing the rest. Row r of `best` (f64, [N, 2 k + 3], k at
  /// most V): the k most probable columns, the most probable first and the lower of equal ones; their
  /// log-probabilities; that of column `also`; two numbers of the backend's own. Logits keep their values.
  /// They may be given in several calls, from the first column to the last: `logits` [N, at most
  /// best_block().columns] are those from column `first` on, and `best` is complete with the last of the V.
  virtual void best_log_softmax(const Tensor& logits, std::int64_t first, std::int64_t vocabulary,
                                std::int32_t also, const Tensor& best) = 0;
  /// to = log(exp(to) + exp(from)), of log-probabilities, which may be minus infinity.
  virtual void log_add_exp(const Tensor& from, const Tensor& to) = 0;
  /// Draws a column of each row of log-probabilities x [N, V], which have the weights exp(x / temperature)
  /// or, for `excluded`, 0: the first one up to which the sum of weights exceeds numbers[row] times that of
  /// all. `numbers`: N, from 0 to below 1, in the backend's memory. Row r of `drawn` (f64, [N, 2]): the
  /// column and its log-probability. Sums are fp64 and do not depend on the number of threads.
  virtual void draw_columns(const Tensor& log_probabilities, const double* numbers, double temperature,
                            std::int32_t excluded, const Tensor& drawn) = 0;

  // Optimisers ----------------------------------------------------------------------------------
  /// One pass over the ranges, which ascend, have no element in common, and lie together by layer. Sums are
  /// accumulated in fp64 and do not depend on the number of threads.
  virtual void update(UpdateRule rule, const UpdateTensors& tensors, const UpdateSettings& settings,
                      std::span<const UpdateRange> ranges) = 0;
  /// All elements, as one layer.
  void update(UpdateRule rule, const UpdateTensors& tensors, const UpdateSettings& settings) {
    const UpdateRange all{.count = tensors.values.size()};
    update(rule, tensors, settings, std::span(&all, 1));
  }
  /// `nmt::scale_layer` on each layer; `sums` [layers, 2] are its squares. `second_moments`: fp32, one for
  /// each layer; null for rules without them.
  virtual void scale_layers(const LayerScaling& scaling, const StepFactors* step, const Tensor& sums,
                            float* second_moments, Layer* layers) {
    for (std::int64_t i = 0; i < sums.rows; ++i) {
      float* const second_moment = second_moments != nullptr ? second_moments + i : nullptr;
      scale_layer(scaling, *step, sums.row_range(i, 1).as<double>(), second_moment, layers[i]);
    }
  }
  /// result (one f64) = max(result, the largest absolute value of x, contiguous). Undefined with NaN.
  virtual void largest_magnitude(const Tensor& x, const Tensor& result) = 0;
  /// `nmt::end_step` on what the pointers refer to, all in the backend's memory.
  virtual void end_step(const StepRules& rules, const StepInput& input, StepState* state,
                        StepRecord* record) {
    nmt::end_step(rules, input, *state, *record);
  }
};

/// `threads` per rank, at least 1. On x86-64 and arm64 the calling thread and its team of OpenMP take floats
/// below 2^-126 as 0 from then on.
std::unique_ptr<Backend> make_cpu_backend(int threads);
std::unique_ptr<Backend> make_reference_backend();

/// The arithmetic of the CUDA backend's products.
struct CudaPrecision {
  bool tf32 = false;  ///< Products of fp32 round their factors to tf32.
  MixedType mixed_type =
      MixedType::automatic;  ///< `narrow_type`; automatic: bf16 if the device has its products.
};

/// An fp32 backend on one CUDA device, whose sums are fp32 for 16-bit tensors too. All work is queued on one
/// stream, in order, but that of `side_by_side` and `wavefront` on several, which wait for each other; only
/// `download` and large uploads make the host wait. Sums do not depend on the order of threads: the same
/// calls give the same bits. For one thread, which must have no other CUDA device selected while it uses the
/// backend. Errors: `unsupported` in a build without CUDA, on a machine without a usable driver or device,
/// and for a `device` that is not below `cuda_devices()` or has no such products, each saying what was found
/// and what to do; calls throw `internal` with what CUDA reports; `allocate` throws `unsupported` if the
/// device's memory is full.
std::unique_ptr<Backend> make_cuda_backend(int device, const CudaPrecision& precision = {});
/// The number of CUDA devices, at least 1. Throws `unsupported` like `make_cuda_backend`.
int cuda_devices();
/// Free memory of the calling thread's CUDA device, in bytes. Throws `unsupported` in a build without CUDA.
std::size_t free_device_memory();

}  // namespace nmt
