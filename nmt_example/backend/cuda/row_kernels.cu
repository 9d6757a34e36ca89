#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

constexpr unsigned sum_lanes = 32;

/// A block sums 32 columns, each with 32 threads that take every 32nd row.
__global__ void add_column_sums_kernel(View x, float* to) {
  __shared__ float partial[sum_lanes][sum_lanes + 1];
  const unsigned column_of_block = threadIdx.x % sum_lanes;
  const unsigned first_row = threadIdx.x / sum_lanes;
  const Index column = Index{blockIdx.x} * sum_lanes + column_of_block;
  float sum = 0;
  if (column < x.cols)
    for (Index r = first_row; r < x.rows; r += sum_lanes) sum += x(r, column);
  partial[first_row][column_of_block] = sum;
  __syncthreads();
  // Transposed, so that a warp holds the 32 sums of one column.
  const float total = reduce_warp(partial[column_of_block][first_row], Add{});
  const Index reduced = Index{blockIdx.x} * sum_lanes + first_row;
  if (column_of_block == 0 && reduced < x.cols) to[reduced] += total;
}

}  // namespace

bool kernels_run_here() {
  cudaFuncAttributes attributes{};
  const bool found = cudaFuncGetAttributes(&attributes, add_column_sums_kernel) == cudaSuccess;
  if (!found) cudaGetLastError();
  return found;
}

void add(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  if (from.contiguous() && to.contiguous() && from.type == ddl::DataType::f32 && to.type == from.type) {
    float* const target = to.as<float>();
    const float* const source = from.as<float>();
    for_each(stream, 1, to.size(), [=] __device__(Index, Index i) { target[i] += source[i]; });
    return;
  }
  const View source = from, target = to;
  for_each(stream, to.rows, to.cols,
           [=] __device__(Index r, Index c) { target.set(r, c, target(r, c) + source(r, c)); });
}

void convert(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  const View source = from, target = to;
  for_each(stream, to.rows, to.cols, [=] __device__(Index r, Index c) { target.set(r, c, source(r, c)); });
}

void add_row(cudaStream_t stream, const Tensor& row, const Tensor& to) {
  const View target = to;
  const float* const source = row.as<float>();
  for_each(stream, to.rows, to.cols,
           [=] __device__(Index r, Index c) { target.set(r, c, target(r, c) + source[c]); });
}

void gather_rows(cudaStream_t stream, const Tensor& from, const Indices& rows, const Tensor& to) {
  const View source = from, target = to;
  const std::int32_t* const row = rows.data;
  for_each(stream, to.rows, to.cols,
           [=] __device__(Index r, Index c) { target.set(r, c, source(row[r], c)); });
}

void scatter_rows(cudaStream_t stream, const Tensor& from, const Indices& rows, const Tensor& to) {
  const View source = from, target = to;
  const std::int32_t* const row = rows.data;
  for_each(stream, from.rows, from.cols,
           [=] __device__(Index r, Index c) { target.set(row[r], c, source(r, c)); });
}

void gather_columns(cudaStream_t stream, const Tensor& from, const Indices& columns, const Tensor& to) {
  const View source = from, target = to;
  const std::int32_t* const column = columns.data;
  for_each(stream, to.rows, to.cols,
           [=] __device__(Index r, Index c) { target.set(r, c, source(r, column[c])); });
}

void add_to_columns(cudaStream_t stream, const Tensor& from, const Indices& columns, const Tensor& to) {
  const View source = from, target = to;
  const std::int32_t* const column = columns.data;
  for_each(stream, from.rows, from.cols, [=] __device__(Index r, Index c) {
    target.set(r, column[c], target(r, column[c]) + source(r, c));
  });
}

void fill_columns_but(cudaStream_t stream, const Tensor& x, std::int64_t first, const Indices& kept,
                      float value) {
  const View target = x;
  const std::int32_t* const keep = kept.data;
  for_each(stream, x.rows, x.cols - first, [=] __device__(Index r, Index c) {
    if (first + c != keep[r]) target.set(r, first + c, value);
  });
}

void add_column_sums(cudaStream_t stream, const Tensor& x, const Tensor& to) {
  if (x.empty()) return;
  const auto blocks = static_cast<unsigned>((x.cols + sum_lanes - 1) / sum_lanes);
  launch_kernel(stream, add_column_sums_kernel, blocks, sum_lanes * sum_lanes, x, to.as<float>());
}

void dropout(cudaStream_t stream, const Tensor& x, const Tensor& y, const PhiloxKey* key,
             std::uint32_t threshold, float scale, const Indices& samples, std::int64_t first_position,
             std::int64_t first_column) {
  if (x.empty()) return;
  const View from = x, to = y;
  const std::int32_t* const sample = samples.data;
  const Index batch = samples.size;
  const Index first_block = first_column / 4;
  for_each(stream, x.rows, (x.cols + 3) / 4, [=] __device__(Index r, Index block) {
    const std::array<std::uint32_t, 4> words =
        dropout_words(*key, static_cast<std::uint32_t>(sample[r % batch]),
                      static_cast<std::uint32_t>(first_position + r / batch),
                      static_cast<std::uint32_t>(first_block + block));
    for (unsigned k = 0; k < 4 && 4 * block + k < from.cols; ++k) {
      const Index c = 4 * block + k;
      to.set(r, c, words[k] < threshold ? 0.0f : from(r, c) * scale);
    }
  });
}

}  // namespace nmt::cuda
