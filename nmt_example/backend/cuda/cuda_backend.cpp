#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <source_location>
#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/cuda/check.hpp"
#include "nmt_example/backend/cuda/devices.hpp"
#include "nmt_example/backend/cuda/graphs.hpp"
#include "nmt_example/backend/cuda/kernels.hpp"
#include "nmt_example/backend/cuda/lanes.hpp"
#include "nmt_example/backend/cuda/lstm_layers.hpp"
#include "nmt_example/backend/cuda/memory.hpp"
#include "nmt_example/backend/cuda/narrow_parameters.hpp"
#include "nmt_example/backend/update_rules.hpp"

namespace nmt {
namespace {

using cuda::check;
using cuda::CublasLibrary;

std::size_t bytes_of(const Tensor& x, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * ddl::size_of(x.type);
}

/// Bytes from row to row. The stride of a single row may be meaningless.
std::size_t pitch_of(const Tensor& x) { return bytes_of(x, std::max(x.stride, x.cols)); }

/// cuBLAS's leading dimension, with the same precaution.
std::int64_t leading(const Tensor& x) { return std::max<std::int64_t>({x.stride, x.cols, 1}); }

cudaDataType_t cublas_type(ddl::DataType type) {
  return type == ddl::DataType::f32 ? CUDA_R_32F : type == ddl::DataType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// Throws if a launch before it failed.
void check_launch(const char* operation, std::source_location where = std::source_location::current()) {
  check(cudaGetLastError(), operation, where);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, const CudaPrecision& precision)
      : device_(cuda::select_device(device, precision)),
        products_(precision.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F) {}

  [[nodiscard]] std::string name() const override { return "cuda (" + device_.name + ")"; }
  [[nodiscard]] ddl::DataType type() const override { return ddl::DataType::f32; }
  [[nodiscard]] ddl::DataType narrow_type() const override { return device_.narrow_type; }
  [[nodiscard]] bool host_accessible() const override { return false; }
  [[nodiscard]] CUstream_st* stream() const override { return lanes_.stream(); }
  void replay(const WorkKey& key, const std::function<void()>& work) override {
    graphs_.replay(key, queue(), narrow_parameters_, work);
  }
  void side_by_side(const std::function<void()>& first, const std::function<void()>& second) override {
    lanes_.side_by_side(first, second);
  }
  void wavefront(std::size_t layers, std::size_t chunks,
                 const std::function<void(std::size_t, std::size_t)>& work) override {
    lanes_.wavefront(layers, chunks, work);
  }
  /// A product of a step, with as many rows as there are sentences, keeps a part of a large device busy:
  /// about as many layers as are in a wave run at once. With fewer chunks, the first and the last layer would
  /// be alone for longer; with more, products of the input would be as small as those of steps.
  [[nodiscard]] std::int64_t chunk_steps(std::int64_t steps) const override {
    constexpr std::int64_t chunks = 8;
    return in_chunks_ ? (steps + chunks - 1) / chunks : steps;
  }
  [[nodiscard]] bool records() const override { return true; }

  // Memory --------------------------------------------------------------------------------------
  std::shared_ptr<void> allocate(std::size_t bytes) override { return cuda::allocate_device(bytes, queue()); }
  std::shared_ptr<void> allocate_host(std::size_t bytes) override { return cuda::allocate_pinned(bytes); }

  void upload(const Tensor& to, std::span<const float> from) override {
    if (to.type == ddl::DataType::f64) {
      wide_.assign(from.begin(), from.end());
      upload_rows(to, wide_.data());
    } else if (to.type == ddl::DataType::bf16) {
      upload_converted<ddl::bfloat16>(to, from);
    } else if (to.type == ddl::DataType::f16) {
      upload_converted<ddl::float16>(to, from);
    } else {
      upload_rows(to, from.data());
    }
  }
  void upload_bytes(void* to, std::span<const std::byte> from) override {
    uploader_.upload(to, from.size(), from.data(), from.size(), 1, queue());
  }
  void download(const Tensor& from, std::span<float> to) override {
    if (from.type == ddl::DataType::bf16) return download_converted<ddl::bfloat16>(from, to);
    if (from.type == ddl::DataType::f16) return download_converted<ddl::float16>(from, to);
    download_rows(from, to.data());
  }
  void download(const Tensor& from, std::span<double> to) override {
    if (from.type == ddl::DataType::f64) {
      download_rows(from, to.data());
      return;
    }
    narrow_.resize(to.size());
    download(from, std::span<float>(narrow_));
    std::copy(narrow_.begin(), narrow_.end(), to.begin());
  }
  void download_bytes(const void* from, std::span<std::byte> to) override {
    check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, queue()), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(queue()), "cudaStreamSynchronize");
  }
  void zero(const Tensor& x) override {
    if (x.empty()) return;
    if (x.contiguous()) {
      check(cudaMemsetAsync(x.data, 0, bytes_of(x, x.size()), queue()), "cudaMemsetAsync");
      return;
    }
    check(cudaMemset2DAsync(x.data, pitch_of(x), 0, bytes_of(x, x.cols), static_cast<std::size_t>(x.rows),
                            queue()),
          "cudaMemset2DAsync");
  }
  void copy(const Tensor& from, const Tensor& to) override {
    if (from.type != to.type) {
      cuda::convert(queue(), from, to);
      check_launch("copy");
    } else if (from.data != to.data) {
      copy_rows(to.data, pitch_of(to), from, cudaMemcpyDeviceToDevice);
    }
  }
  void add(const Tensor& from, const Tensor& to) override {
    cuda::add(queue(), from, to);
    check_launch("add");
  }
  void gather_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    cuda::gather_rows(queue(), from, rows, to);
    check_launch("gather_rows");
  }
  void scatter_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    cuda::scatter_rows(queue(), from, rows, to);
    check_launch("scatter_rows");
  }
  void fill_columns_but(const Tensor& x, std::int64_t first, const Indices& kept, double value) override {
    cuda::fill_columns_but(queue(), x, first, kept, static_cast<float>(value));
    check_launch("fill_columns_but");
  }

  // Dense ---------------------------------------------------------------------------------------
  void gemm(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
            const Tensor& c) override {
    const std::int64_t inner = ta == Transpose::yes ? a.rows : a.cols;
    assert((ta == Transpose::yes ? a.cols : a.rows) == c.rows);
    assert((tb == Transpose::yes ? b.rows : b.cols) == c.cols);
    assert((tb == Transpose::yes ? b.cols : b.rows) == inner);
    if (c.empty()) return;
    if (inner == 0) {
      if (!accumulate) zero(c);
      return;
    }
    // cuBLAS is column-major, so it sees the transposes: (A B)^T = B^T A^T.
    const float one = 1.0f, beta = accumulate ? 1.0f : 0.0f;
    assert(a.type == b.type && (c.type == ddl::DataType::f32 || c.type == a.type));
    check(CublasLibrary::get().gemm(lanes_.current().cublas.get(), operation(tb), operation(ta), c.cols,
                                    c.rows, inner, &one, b.data, cublas_type(b.type), leading(b), a.data,
                                    cublas_type(a.type), leading(a), &beta, c.data, cublas_type(c.type),
                                    leading(c), compute_type(a.type), CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }
  void multiply(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate,
                const Tensor& c) override {
    gemm(Transpose::no, tb, a,
         a.type == parameter.type || parameter.empty()
             ? parameter
             : narrow_parameters_.copy_of(parameter, a.type, queue()),
         accumulate, c);
  }
  void parameters_changed() override {
    narrow_parameters_.forget();
    if (lstm_layers_) lstm_layers_->parameters_changed();
  }
  [[nodiscard]] std::size_t product_bytes() const override {
    return lanes_.count() * cuda::cublas_workspace_bytes + narrow_parameters_.bytes();
  }
  void add_row(const Tensor& row, const Tensor& to) override {
    cuda::add_row(queue(), row, to);
    check_launch("add_row");
  }
  void add_column_sums(const Tensor& x, const Tensor& to) override {
    cuda::add_column_sums(queue(), x, to);
    check_launch("add_column_sums");
  }

  // Embedding -----------------------------------------------------------------------------------
  void embedding_backward(const Tensor& gradient, const Indices& ids, const Tensor& table_gradient) override {
    cuda::embedding_backward(queue(), gradient, ids, table_gradient,
                             scratch(cuda::embedding_scratch(gradient)));
    check_launch("embedding_backward");
  }

  // Dropout -------------------------------------------------------------------------------------
  void dropout(const Tensor& x, const Tensor& y, const PhiloxKey* key, double rate, const Indices& samples,
               std::int64_t first_position, std::int64_t first_column) override {
    assert(first_column % 4 == 0);
    if (rate <= 0) {
      copy(x, y);
      return;
    }
    cuda::dropout(queue(), x, y, key, dropout_threshold(rate), static_cast<float>(1.0 / (1.0 - rate)),
                  samples, first_position, first_column);
    check_launch("dropout");
  }

  // LSTM ----------------------------------------------------------------------------------------
  std::string use_lstm(LstmMethod method) override {
    try {
      std::unique_ptr<cuda::LstmLayers> layers;
      if (method == LstmMethod::cudnn)
        layers = cuda::make_cudnn_lstm(queue(), products_ == CUBLAS_COMPUTE_32F_FAST_TF32);
      lstm_layers_ = std::move(layers);
      in_chunks_ = method == LstmMethod::wavefront;
      graphs_.clear();
      return "";
    } catch (const ddl::Error& error) {
      if (error.code() != ddl::ErrorCode::unsupported) throw;
      return error.what();
    }
  }
  bool lstm_layer_forward(const LstmLayer& layer) override {
    if (!lstm_layers_ || !lstm_layers_->forward(queue(), layer)) return false;
    graphs_.leave_out();  // it keeps track of its memory on the host
    return true;
  }
  void lstm_layer_backward(const LstmLayer& layer, const LstmLayerBackward& gradients) override {
    lstm_layers_->backward(queue(), layer, gradients);
    graphs_.leave_out();
  }
  void lstm_cell_forward(const LstmStep& step) override {
    cuda::lstm_cell_forward(queue(), step);
    check_launch("lstm_cell_forward");
  }
  void lstm_cell_backward(const LstmStepBackward& step) override {
    cuda::lstm_cell_backward(queue(), step);
    check_launch("lstm_cell_backward");
  }

  // Other cells ---------------------------------------------------------------------------------
  void cell_rows(CellOperation operation, const CellRows& rows) override {
    cuda::cell_rows(queue(), operation, rows);
    check_launch("cell_rows");
  }

  // Attention -----------------------------------------------------------------------------------
  void attention_forward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                         const Tensor& keys, const Tensor& memory, const Indices& lengths,
                         const Tensor& weights, const Tensor& context) override {
    check_source(shape);
    cuda::attention_forward(queue(), shape, score, query, keys, memory, lengths, weights, context);
    check_launch("attention_forward");
  }
  void attention_backward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                          const Tensor& keys, const Tensor& memory, const Indices& lengths,
                          const Tensor& weights, const Tensor& d_context, const Tensor& d_scores,
                          const Tensor& d_query) override {
    check_source(shape);
    cuda::attention_backward(queue(), shape, score, query, keys, memory, lengths, weights, d_context,
                             d_scores, d_query);
    check_launch("attention_backward");
  }
  void attention_memory_backward(const AttentionShape& shape, const AttentionScore& score,
                                 const Tensor& query, const Tensor& keys, const Indices& lengths,
                                 const Tensor& weights, const Tensor& d_scores, const Tensor& d_context,
                                 const Tensor& d_keys, const Tensor& d_memory,
                                 const AttentionScore& d_score) override {
    assert(shape.sentence_of_row.size == 0);
    // Weights and d_scores are zero beyond the lengths, and so are the products.
    multiply_by_sentence(shape.sentences, weights, d_context, d_memory);
    if (score.v.data != nullptr) {
      const auto elements = static_cast<std::size_t>(keys.size());
      const Tensor d_v{scratch((elements + 1) / 2), keys.rows, keys.cols, keys.cols, ddl::DataType::f32};
      cuda::additive_memory_backward(queue(), shape, score.v, query, keys, lengths, d_scores, d_keys, d_v);
      cuda::add_column_sums(queue(), d_v, d_score.v);
      check_launch("attention_memory_backward");
      return;
    }
    multiply_by_sentence(shape.sentences, d_scores, query, d_keys);
    if (score.scale.data == nullptr) return;
    cuda::attention_scale_backward(queue(), keys, score.scale, d_keys, d_score.scale,
                                   scratch(static_cast<std::size_t>(keys.rows)));
    check_launch("attention_memory_backward");
  }
  void scaled_direction(const Tensor& v, const Tensor& g, const Tensor& out) override {
    cuda::scaled_direction(queue(), v, g, out);
    check_launch("scaled_direction");
  }
  void scaled_direction_backward(const Tensor& v, const Tensor& g, const Tensor& d_out, const Tensor& d_v,
                                 const Tensor& d_g) override {
    cuda::scaled_direction_backward(queue(), v, g, d_out, d_v, d_g);
    check_launch("scaled_direction_backward");
  }

  // Loss ----------------------------------------------------------------------------------------
  /// 128 MiB of them, but at least 1,024 rows, with which products of large vocabularies run at full speed.
  [[nodiscard]] std::int64_t logits_rows(std::int64_t vocabulary) const override {
    return std::clamp<std::int64_t>((std::int64_t{1} << 25) / vocabulary, 1024, 16384);
  }
  void softmax_cross_entropy(const Tensor& logits, const Indices& targets, double label_smoothing,
                             const Tensor& gradient, const double* scale, const Tensor& sums) override {
    assert(sums.type == ddl::DataType::f64 && (gradient.data == nullptr || gradient.data == logits.data));
    cuda::softmax_cross_entropy(queue(), logits, targets, static_cast<float>(label_smoothing), gradient,
                                scale, sums, scratch(2 * static_cast<std::size_t>(logits.rows)));
    check_launch("softmax_cross_entropy");
  }
  void log_softmax(const Tensor& logits) override {
    cuda::log_softmax(queue(), logits);
    check_launch("log_softmax");
  }
  void best_log_softmax(const Tensor& logits, std::int64_t, std::int64_t, std::int32_t also,
                        const Tensor& best) override {
    assert(best.type == ddl::DataType::f64 && best.cols / 2 <= logits.cols);
    cuda::best_log_softmax(queue(), logits, also, best);
    check_launch("best_log_softmax");
  }
  void log_add_exp(const Tensor& from, const Tensor& to) override {
    cuda::log_add_exp(queue(), from, to);
    check_launch("log_add_exp");
  }
  void draw_columns(const Tensor& log_probabilities, const double* numbers, double temperature,
                    std::int32_t excluded, const Tensor& drawn) override {
    assert(drawn.type == ddl::DataType::f64 && drawn.cols == 2);
    cuda::draw_columns(queue(), log_probabilities, numbers, temperature, excluded, drawn);
    check_launch("draw_columns");
  }

  // Optimisers ----------------------------------------------------------------------------------
  void update(UpdateRule rule, const UpdateTensors& tensors, const UpdateSettings& settings,
              std::span<const UpdateRange> ranges) override {
    assert(tensors.values.contiguous() && tensors.gradients.contiguous());
    const UpdateUse use = use_of(rule);
    std::vector<cuda::CopiedRange> copied;
    if (use.value) copied = narrow_parameters_.updated_with(tensors.values);
    cuda::update(queue(), rule, tensors, settings, ranges, copied,
                 use.measures ? scratch(cuda::update_scratch(ranges)) : nullptr);
    check_launch("update");
  }
  void scale_layers(const LayerScaling& scaling, const StepFactors* step, const Tensor& sums,
                    float* second_moments, Layer* layers) override {
    assert(sums.contiguous());
    cuda::scale_layers(queue(), scaling, step, sums, second_moments, layers);
    check_launch("scale_layers");
  }
  void largest_magnitude(const Tensor& x, const Tensor& result) override {
    cuda::largest_magnitude(queue(), x, result, scratch(cuda::most_partial_results));
    check_launch("largest_magnitude");
  }
  void end_step(const StepRules& rules, const StepInput& input, StepState* state,
                StepRecord* record) override {
    cuda::end_step(queue(), rules, input, state, record);
    check_launch("end_step");
  }

 private:
  [[nodiscard]] cudaStream_t queue() const { return lanes_.current().stream.get(); }
  /// Valid until the next call in the same lane.
  [[nodiscard]] double* scratch(std::size_t count) {
    return lanes_.current().scratch.doubles(count, queue());
  }

  static cublasOperation_t operation(Transpose transpose) {
    return transpose == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
  }

  /// For each sentence b: out[s * sentences + b] = sum_t scores[t * sentences + b][s] x[t * sentences + b].
  void multiply_by_sentence(std::int64_t sentences, const Tensor& scores, const Tensor& x,
                            const Tensor& out) {
    if (out.empty()) return;
    const std::int64_t steps = x.rows / sentences;
    if (steps == 0) {
      zero(out);
      return;
    }
    // A sentence's rows are a batch apart; the next sentence begins a row later. cuBLAS sees transposes.
    const float one = 1.0f, none = 0.0f;
    check(CublasLibrary::get().gemm_strided_batched(
              lanes_.current().cublas.get(), CUBLAS_OP_N, CUBLAS_OP_T, out.cols, scores.cols, steps, &one,
              x.data, cublas_type(x.type), leading(x) * sentences, leading(x), scores.data,
              cublas_type(scores.type), leading(scores) * sentences, leading(scores), &none, out.data,
              cublas_type(out.type), leading(out) * sentences, leading(out), sentences, compute_type(x.type),
              CUBLAS_GEMM_DEFAULT),
          "cublasGemmStridedBatchedEx");
  }

  [[nodiscard]] cublasComputeType_t compute_type(ddl::DataType type) const {
    return type == ddl::DataType::f32 ? products_ : CUBLAS_COMPUTE_32F;
  }

  static void check_source(const AttentionShape& shape) {
    if (shape.source_steps <= cuda::most_source_steps) return;
    throw ddl::Error(
        ddl::ErrorCode::unsupported,
        fmt::format("a source of {} words is too long for attention with --device=cuda, which takes up to "
                    "{}; lower --src_max_len or --src_max_len_infer, or use --device=cpu",
                    shape.source_steps, cuda::most_source_steps));
  }

  template <typename T>
  void upload_converted(const Tensor& to, std::span<const float> from) {
    std::vector<T> values;
    values.reserve(from.size());
    for (const float x : from) values.emplace_back(x);
    upload_rows(to, values.data());
  }
  template <typename T>
  void download_converted(const Tensor& from, std::span<float> to) {
    std::vector<T> values(to.size());
    download_rows(from, values.data());
    std::ranges::transform(values, to.begin(), [](T x) { return static_cast<float>(x); });
  }
  void upload_rows(const Tensor& to, const void* from) {
    uploader_.upload(to.data, pitch_of(to), from, bytes_of(to, to.cols), static_cast<std::size_t>(to.rows),
                     queue());
  }
  void copy_rows(void* to, std::size_t pitch, const Tensor& from, cudaMemcpyKind kind) {
    cuda::copy_rows(to, pitch, from.data, pitch_of(from), bytes_of(from, from.cols),
                    static_cast<std::size_t>(from.rows), kind, queue());
  }
  void download_rows(const Tensor& from, void* to) {
    copy_rows(to, bytes_of(from, from.cols), from, cudaMemcpyDeviceToHost);
    check(cudaStreamSynchronize(queue()), "cudaStreamSynchronize");
  }

  cuda::Device device_;
  cublasComputeType_t products_;  // of fp32
  cuda::Lanes lanes_;
  cuda::Uploader uploader_;
  cuda::Graphs graphs_;
  std::unique_ptr<cuda::LstmLayers> lstm_layers_;
  bool in_chunks_ = false;
  cuda::NarrowParameters narrow_parameters_;
  std::vector<float> narrow_;
  std::vector<double> wide_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int device, const CudaPrecision& precision) {
  return std::make_unique<CudaBackend>(device, precision);
}

}  // namespace nmt
