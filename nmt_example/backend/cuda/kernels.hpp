#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "nmt_example/backend/backend.hpp"

/// The CUDA backend's own kernels, launched on a stream; see the operations of the same names in Backend.
/// Everything is computed in fp32, except sums in fp64; tensors may have 16 bits where Backend allows it. No
/// result depends on the order in which threads run. Launch errors are left for cudaGetLastError.
namespace nmt::cuda {

/// Whether the current device can run the kernels of this build.
bool kernels_run_here();

// row_kernels.cu
void add(cudaStream_t stream, const Tensor& from, const Tensor& to);
/// to = from, of another type
void convert(cudaStream_t stream, const Tensor& from, const Tensor& to);
void add_row(cudaStream_t stream, const Tensor& row, const Tensor& to);
void gather_rows(cudaStream_t stream, const Tensor& from, const Indices& rows, const Tensor& to);
void scatter_rows(cudaStream_t stream, const Tensor& from, const Indices& rows, const Tensor& to);
void fill_columns_but(cudaStream_t stream, const Tensor& x, std::int64_t first, const Indices& kept,
                      float value);
void add_column_sums(cudaStream_t stream, const Tensor& x, const Tensor& to);
void dropout(cudaStream_t stream, const Tensor& x, const Tensor& y, const PhiloxKey* key,
             std::uint32_t threshold, float scale, const Indices& samples, std::int64_t first_position,
             std::int64_t first_column);

// embedding_kernels.cu
/// How many f64 of scratch `embedding_backward` takes.
std::size_t embedding_scratch(const Tensor& gradient);
/// Sorts the ids in tiles of 512, each of which every id is looked up in. Adds up the gradients of each 64 of
/// an id's places by themselves, so that a frequent word does not keep one warp busy.
void embedding_backward(cudaStream_t stream, const Tensor& gradient, const Indices& ids,
                        const Tensor& table_gradient, double* scratch);

// lstm_kernels.cu
void lstm_cell_forward(cudaStream_t stream, const Backend::LstmStep& step);
void lstm_cell_backward(cudaStream_t stream, const Backend::LstmStepBackward& step);

// cell_kernels.cu
void cell_rows(cudaStream_t stream, CellOperation operation, const CellRows& rows);

// attention_kernels.cu
/// The longest sources: a block keeps a row's scores in its shared memory.
inline constexpr std::int64_t most_source_steps = 8192;
void attention_forward(cudaStream_t stream, const AttentionShape& shape, const AttentionScore& score,
                       const Tensor& query, const Tensor& keys, const Tensor& memory, const Indices& lengths,
                       const Tensor& weights, const Tensor& context);
void attention_backward(cudaStream_t stream, const AttentionShape& shape, const AttentionScore& score,
                        const Tensor& query, const Tensor& keys, const Tensor& memory, const Indices& lengths,
                        const Tensor& weights, const Tensor& d_context, const Tensor& d_scores,
                        const Tensor& d_query);
/// d_keys of additive scores, and each key's part of d_v; both like keys.
void additive_memory_backward(cudaStream_t stream, const AttentionShape& shape, const Tensor& v,
                              const Tensor& query, const Tensor& keys, const Indices& lengths,
                              const Tensor& d_scores, const Tensor& d_keys, const Tensor& d_v);
void scaled_direction(cudaStream_t stream, const Tensor& v, const Tensor& g, const Tensor& out);
void scaled_direction_backward(cudaStream_t stream, const Tensor& v, const Tensor& g, const Tensor& d_out,
                               const Tensor& d_v, const Tensor& d_g);
/// d_scale += sum of d_keys * keys; then d_keys *= scale. `scratch`: one f64 for each row of keys.
void attention_scale_backward(cudaStream_t stream, const Tensor& keys, const Tensor& scale,
                              const Tensor& d_keys, const Tensor& d_scale, double* scratch);

// softmax_kernels.cu
/// `scratch`: two f64 a row.
void softmax_cross_entropy(cudaStream_t stream, const Tensor& logits, const Indices& targets,
                           float label_smoothing, const Tensor& gradient, const double* scale,
                           const Tensor& sums, double* scratch);
void log_softmax(cudaStream_t stream, const Tensor& logits);
void best_log_softmax(cudaStream_t stream, const Tensor& logits, std::int32_t also, const Tensor& best);
void log_add_exp(cudaStream_t stream, const Tensor& from, const Tensor& to);
void draw_columns(cudaStream_t stream, const Tensor& log_probabilities, const double* numbers,
                  double temperature, std::int32_t excluded, const Tensor& drawn);

// optimizer_kernels.cu
/// Some of an update's values, at most `most_copied`, and their copy, a 16-bit tensor of as many elements.
struct CopiedRange {
  std::int64_t first, count;
  Tensor copy;
};
inline constexpr std::int64_t most_copied = std::int64_t{1} << 31;
/// How many f64 of scratch an `update` that measures takes.
std::size_t update_scratch(std::span<const UpdateRange> ranges);
/// Writes what changes to the copies too. `copied`: disjoint and ascending.
void update(cudaStream_t stream, UpdateRule rule, const UpdateTensors& tensors,
            const UpdateSettings& settings, std::span<const UpdateRange> ranges,
            std::span<const CopiedRange> copied, double* scratch);
/// `sums` [layers, 2] without gaps.
void scale_layers(cudaStream_t stream, const LayerScaling& scaling, const StepFactors* step,
                  const Tensor& sums, float* second_moments, Layer* layers);
inline constexpr std::size_t most_partial_results = 1024;
/// `scratch`: `most_partial_results` f64.
void largest_magnitude(cudaStream_t stream, const Tensor& x, const Tensor& result, double* scratch);
void end_step(cudaStream_t stream, const StepRules& rules, const StepInput& input, StepState* state,
              StepRecord* record);

}  // namespace nmt::cuda
