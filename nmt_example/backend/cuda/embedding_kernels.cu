#include <cassert>

#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

/// An id, and below it the place where it stands: keys of equal ids are in the order of their places, and no
/// two keys are equal.
using Key = std::uint64_t;

constexpr unsigned tile_keys = 512;
constexpr Index chunk_rows = 64;
constexpr unsigned warps = block_threads / 32;

Index tiles_of(Index count, Index size) { return (count + size - 1) / size; }

__device__ Key key_of(Index id, Index place) {
  return static_cast<Key>(id) << 32 | static_cast<std::uint32_t>(place);
}
__device__ Index id_of(Key key) { return static_cast<Index>(key >> 32); }
__device__ Index place_of(Key key) { return static_cast<std::uint32_t>(key); }

/// How many of the sorted keys are lower.
__device__ unsigned lower_keys(const Key* sorted, unsigned count, Key key) {
  unsigned begin = 0;
  while (count > 0) {
    const unsigned half = count / 2;
    const bool is_lower = sorted[begin + half] < key;
    begin = is_lower ? begin + half + 1 : begin;
    count = is_lower ? count - half - 1 : half;
  }
  return begin;
}

/// Sorts each tile of the places by itself.
__global__ void sort_tiles_kernel(const std::int32_t* ids, Index count, Key* tiles) {
  __shared__ Key keys[tile_keys];
  const Index first = Index{blockIdx.x} * tile_keys, place = first + threadIdx.x;
  const Key own = place < count ? key_of(ids[place], place) : ~Key{0};
  keys[threadIdx.x] = own;
  __syncthreads();
  if (place >= count) return;
  unsigned lower = 0;
  for (unsigned k = 0; k < tile_keys; ++k) lower += keys[k] < own ? 1 : 0;
  tiles[first + lower] = own;
}

/// Puts each key where it belongs among all tiles' keys.
__global__ void merge_tiles_kernel(const Key* tiles, Index count, Key* sorted) {
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const Key own = tiles[i];
  Index lower = 0;
  for (Index first = 0; first < count; first += tile_keys) {
    const Index keys = count - first < tile_keys ? count - first : tile_keys;
    lower += lower_keys(tiles + first, static_cast<unsigned>(keys), own);
  }
  sorted[lower] = own;
}

/// Some of an id's places: those of its first `chunk_rows` keys from `begin` on.
struct Chunk {
  const Key* keys;
  unsigned rows;

  __device__ Chunk(const Key* sorted, Index count, Index begin) : keys(sorted + begin) {
    const Index most = count - begin < chunk_rows ? count - begin : chunk_rows;
    rows = lower_keys(keys, static_cast<unsigned>(most), key_of(id_of(*keys) + 1, 0));
  }
  template <typename T, int n>
  __device__ void add(const Matrix<T>& gradient, Index column, Pack<float, n>& sums) const {
    for (unsigned i = 0; i < rows; ++i) sums += gradient.load(place_of(keys[i]), column, Width<n>());
  }
};

template <typename T>
struct Gradient {
  Matrix<T> rows;
  Index columns;
  bool packs;

  /// Calls f(column, Width) for the columns of the warp, of which a lane has a pack.
  template <typename F>
  __device__ void for_columns(const F& f) const {
    constexpr int width = pack_width<T>;
    for_pack<width>(packs, Index{blockIdx.y} * 32 * width, threadIdx.x % 32, 32, columns, f);
  }
};

/// Sums all chunks of ids' keys but their first ones. A chunk whose first key is number i is row i /
/// chunk_rows of `chunks`: an id's chunks follow each other there, and no two ids share a row.
template <typename T>
__global__ void sum_chunks_kernel(Gradient<T> gradient, const Key* sorted, Index count,
                                  Matrix<float> chunks) {
  const Index row = Index{blockIdx.x} * warps + threadIdx.x / 32, key = row * chunk_rows;
  if (key >= count) return;
  const Index id = id_of(sorted[key]);
  const Index first_of_id = lower_keys(sorted, static_cast<unsigned>(count), key_of(id, 0));
  const Index begin = first_of_id + (key - first_of_id + chunk_rows - 1) / chunk_rows * chunk_rows;
  if (begin == first_of_id || begin >= count || id_of(sorted[begin]) != id) return;
  const Chunk chunk(sorted, count, begin);
  gradient.for_columns([&](Index c, auto n) {
    Pack<float, n> sums{};
    chunk.add(gradient.rows, c, sums);
    chunks.store(row, c, sums);
  });
}

/// Adds each id's first chunk, and the sums of its others, to its row of the table.
template <typename T, typename Sum>
__global__ void add_chunks_kernel(Gradient<T> gradient, const Key* sorted, Index count, Matrix<float> chunks,
                                  Matrix<Sum> table) {
  const Index begin = Index{blockIdx.x} * warps + threadIdx.x / 32;
  if (begin >= count) return;
  const Index id = id_of(sorted[begin]);
  if (begin > 0 && id_of(sorted[begin - 1]) == id) return;
  const Chunk chunk(sorted, count, begin);
  gradient.for_columns([&](Index c, auto n) {
    auto sums = table.load(id, c, n);
    chunk.add(gradient.rows, c, sums);
    for (Index i = begin + chunk_rows; i < count && id_of(sorted[i]) == id; i += chunk_rows)
      sums += chunks.load(i / chunk_rows, c, n);
    table.store(id, c, sums);
  });
}

}  // namespace

std::size_t embedding_scratch(const Tensor& gradient) {
  const Index floats = tiles_of(gradient.rows, chunk_rows) * aligned_stride(gradient.cols);
  return static_cast<std::size_t>(2 * aligned_stride(gradient.rows) + floats / 2);
}

void embedding_backward(cudaStream_t stream, const Tensor& gradient, const Indices& ids,
                        const Tensor& table_gradient, double* scratch) {
  if (gradient.empty()) return;
  const Index count = ids.size;
  auto* const tiles = reinterpret_cast<Key*>(scratch);
  Key* const sorted = tiles + aligned_stride(count);
  const Tensor chunks{sorted + aligned_stride(count), tiles_of(count, chunk_rows), gradient.cols,
                      aligned_stride(gradient.cols), ddl::DataType::f32};
  const auto blocks = [](Index all, Index each) { return static_cast<unsigned>(tiles_of(all, each)); };
  launch_kernel(stream, sort_tiles_kernel, blocks(count, tile_keys), tile_keys, ids.data, count, tiles);
  launch_kernel(stream, merge_tiles_kernel, blocks(count, 128), 128, tiles, count, sorted);
  with_types(gradient.type, table_gradient.type, [&]<typename T, typename Sum>(T, Sum) {
    const Gradient<T> rows{gradient, gradient.cols, moves_packs(gradient, chunks, table_gradient)};
    const unsigned across = blocks(gradient.cols, 32 * pack_width<T>);
    launch_kernel(stream, sum_chunks_kernel<T>, dim3(blocks(chunks.rows, warps), across), block_threads, rows,
                  sorted, count, chunks);
    launch_kernel(stream, add_chunks_kernel<T, Sum>, dim3(blocks(count, warps), across), block_threads, rows,
                  sorted, count, chunks, table_gradient);
  });
}

}  // namespace nmt::cuda
