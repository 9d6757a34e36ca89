#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

constexpr unsigned sum_lanes = 32;
/// Loads that a thread has under way.
constexpr int loads_at_once = 4;

/// A block sums 32 columns. A warp takes as many rows at once as packs leave lanes for.
template <int width, typename T>
__device__ void add_column_sums(const Matrix<T>& x, Index rows, Index cols, View to) {
  constexpr unsigned across = sum_lanes / width, rows_of_warp = sum_lanes / across;
  __shared__ float partial[sum_lanes][sum_lanes + 1];
  const unsigned lane = threadIdx.x % sum_lanes, warp = threadIdx.x / sum_lanes;
  const Index first = Index{blockIdx.x} * sum_lanes + lane % across * width;
  Pack<float, width> sums{};
  const Index begin = warp * rows_of_warp + lane / across, step = sum_lanes * rows_of_warp;
  if (first + width <= cols) {
    for (Index r = begin; r < rows; r += loads_at_once * step) {
      Pack<float, width> values[loads_at_once] = {};
      for (int k = 0; k < loads_at_once; ++k)
        if (r + k * step < rows) values[k] = x.load(r + k * step, first, Width<width>());
      for (int k = 0; k < loads_at_once; ++k) sums += values[k];
    }
  } else {
    for (Index r = begin; r < rows; r += step)
      for (Index c = first; c < cols; ++c) sums[static_cast<int>(c - first)] += x(r, c);
  }
  for (int k = 0; k < width; ++k) {
    for (unsigned offset = across; offset < sum_lanes; offset *= 2)
      sums[k] += __shfl_xor_sync(0xffffffffu, sums[k], static_cast<int>(offset));
    if (lane < across) partial[warp][lane * width + static_cast<unsigned>(k)] = sums[k];
  }
  __syncthreads();
  // Transposed, so that a warp holds the 32 sums of one column.
  const float total = reduce_warp(partial[lane][warp], Add{});
  const Index column = Index{blockIdx.x} * sum_lanes + warp;
  if (lane == 0 && column < cols) to.set(0, column, to(0, column) + total);
}

template <typename T>
__global__ void add_column_sums_kernel(Matrix<T> x, Index rows, Index cols, bool packs, View to) {
  packs ? add_column_sums<pack_width<T>>(x, rows, cols, to) : add_column_sums<1>(x, rows, cols, to);
}

template <typename A, typename B>
void add(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  const Matrix<A> source(from);
  const Matrix<B> target(to);
  for_each_pack<pack_width<A, B>>(stream, to.rows, to.cols, moves_packs(from, to),
                                  [=] __device__(Index r, Index c, auto n) {
                                    auto sums = target.load(r, c, n);
                                    sums += source.load(r, c, n);
                                    target.store(r, c, sums);
                                  });
}

template <typename A, typename B>
void convert(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  const Matrix<A> source(from);
  const Matrix<B> target(to);
  for_each_pack<pack_width<A, B>>(
      stream, to.rows, to.cols, moves_packs(from, to),
      [=] __device__(Index r, Index c, auto n) { target.store(r, c, source.load(r, c, n)); });
}

template <typename T>
void add_row(cudaStream_t stream, const Tensor& row, const Tensor& to) {
  const Matrix<float> source(row);
  const Matrix<T> target(to);
  for_each_pack<pack_width<T>>(stream, to.rows, to.cols, moves_packs(row, to),
                               [=] __device__(Index r, Index c, auto n) {
                                 auto sums = target.load(r, c, n);
                                 sums += source.load(0, c, n);
                                 target.store(r, c, sums);
                               });
}

template <typename A, typename B>
void gather_rows(cudaStream_t stream, const Tensor& from, const Indices& rows, const Tensor& to) {
  const Matrix<A> source(from);
  const Matrix<B> target(to);
  const std::int32_t* const row = rows.data;
  for_each_pack<pack_width<A, B>>(
      stream, to.rows, to.cols, moves_packs(from, to),
      [=] __device__(Index r, Index c, auto n) { target.store(r, c, source.load(row[r], c, n)); });
}

template <typename A, typename B>
void scatter_rows(cudaStream_t stream, const Tensor& from, const Indices& rows, const Tensor& to) {
  const Matrix<A> source(from);
  const Matrix<B> target(to);
  const std::int32_t* const row = rows.data;
  for_each_pack<pack_width<A, B>>(
      stream, from.rows, from.cols, moves_packs(from, to),
      [=] __device__(Index r, Index c, auto n) { target.store(row[r], c, source.load(r, c, n)); });
}

template <typename T>
void fill_columns_but(cudaStream_t stream, const Tensor& x, std::int64_t first, const Indices& kept,
                      float value) {
  const Matrix<T> target(x);
  const std::int32_t* const keep = kept.data;
  for_each(stream, x.rows, x.cols - first, [=] __device__(Index r, Index c) {
    if (first + c != keep[r]) target.set(r, first + c, value);
  });
}

/// What `dropout` knows of its rows.
struct DropoutRows {
  const PhiloxKey* key;
  std::uint32_t threshold;
  float scale;
  const std::int32_t* samples;
  Index batch, first_position, first_block;
};

template <typename A, typename B>
void dropout(cudaStream_t stream, const Tensor& x, const Tensor& y, const DropoutRows& rows) {
  const Matrix<A> from(x);
  const Matrix<B> to(y);
  for_each_pack<pack_width<A, B>>(
      stream, x.rows, x.cols, moves_packs(x, y), [=] __device__(Index r, Index c, auto n) {
        auto values = from.load(r, c, n);
        std::array<std::uint32_t, 4> words;
        for (int k = 0; k < n; ++k) {
          if (k % 4 == 0) {
            words = dropout_words(*rows.key, static_cast<std::uint32_t>(rows.samples[r % rows.batch]),
                                  static_cast<std::uint32_t>(rows.first_position + r / rows.batch),
                                  static_cast<std::uint32_t>(rows.first_block + (c + k) / 4));
          }
          values[k] = words[n == 1 ? c % 4 : k % 4] < rows.threshold ? 0.0f : values[k] * rows.scale;
        }
        to.store(r, c, values);
      });
}

}  // namespace

bool kernels_run_here() {
  cudaFuncAttributes attributes{};
  const bool found = cudaFuncGetAttributes(&attributes, add_column_sums_kernel<float>) == cudaSuccess;
  if (!found) cudaGetLastError();
  return found;
}

void add(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  const bool are_flat = from.contiguous() && to.contiguous();
  const Tensor source = are_flat ? from.reshaped(1, from.size()) : from;
  const Tensor target = are_flat ? to.reshaped(1, to.size()) : to;
  with_types(from.type, to.type, [&]<typename A, typename B>(A, B) { add<A, B>(stream, source, target); });
}

void convert(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  with_types(from.type, to.type, [&]<typename A, typename B>(A, B) { convert<A, B>(stream, from, to); });
}

void add_row(cudaStream_t stream, const Tensor& row, const Tensor& to) {
  with_type(to.type, [&]<typename T>(T) { add_row<T>(stream, row, to); });
}

void gather_rows(cudaStream_t stream, const Tensor& from, const Indices& rows, const Tensor& to) {
  with_types(from.type, to.type,
             [&]<typename A, typename B>(A, B) { gather_rows<A, B>(stream, from, rows, to); });
}

void scatter_rows(cudaStream_t stream, const Tensor& from, const Indices& rows, const Tensor& to) {
  with_types(from.type, to.type,
             [&]<typename A, typename B>(A, B) { scatter_rows<A, B>(stream, from, rows, to); });
}

void fill_columns_but(cudaStream_t stream, const Tensor& x, std::int64_t first, const Indices& kept,
                      float value) {
  with_type(x.type, [&]<typename T>(T) { fill_columns_but<T>(stream, x, first, kept, value); });
}

void add_column_sums(cudaStream_t stream, const Tensor& x, const Tensor& to) {
  if (x.empty()) return;
  const auto blocks = static_cast<unsigned>((x.cols + sum_lanes - 1) / sum_lanes);
  with_type(x.type, [&]<typename T>(T) {
    launch_kernel(stream, add_column_sums_kernel<T>, blocks, sum_lanes * sum_lanes, x, x.rows, x.cols,
                  moves_packs(x), to);
  });
}

void dropout(cudaStream_t stream, const Tensor& x, const Tensor& y, const PhiloxKey* key,
             std::uint32_t threshold, float scale, const Indices& samples, std::int64_t first_position,
             std::int64_t first_column) {
  const DropoutRows rows{key, threshold, scale, samples.data, samples.size, first_position, first_column / 4};
  with_types(x.type, y.type, [&]<typename A, typename B>(A, B) { dropout<A, B>(stream, x, y, rows); });
}

}  // namespace nmt::cuda
