#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"

namespace nmt::cuda {
namespace {

/// An id, and below it the place where it stands: keys of equal ids are in the order of their places, and no
/// two keys are equal.
using Key = std::uint64_t;

constexpr unsigned tile_keys = 512;
constexpr Index chunk_rows = 64;
constexpr unsigned columns_of_lane = 4, columns_of_warp = 32 * columns_of_lane;
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

/// A warp's columns of a row, of which a lane has every 32nd.
struct Sums {
  Index first, columns;
  float values[columns_of_lane];

  __device__ Sums(const View& x, Index tile)
      : first(tile * columns_of_warp + threadIdx.x % 32), columns(x.cols) {
    for (float& value : values) value = 0;
  }
  __device__ void add(const View& x, Index row) {
    for (unsigned k = 0; k < columns_of_lane; ++k)
      if (first + 32 * k < columns) values[k] += x(row, first + 32 * k);
  }
  __device__ void set(const View& x, Index row) const {
    for (unsigned k = 0; k < columns_of_lane; ++k)
      if (first + 32 * k < columns) x.set(row, first + 32 * k, values[k]);
  }
};

/// Adds the rows of the id's first `chunk_rows` keys from `begin` on.
__device__ void add_chunk(const View& gradient, const Key* sorted, Index count, Index begin, Sums& sums) {
  const Index most = count - begin < chunk_rows ? count - begin : chunk_rows;
  const Key end = key_of(id_of(sorted[begin]) + 1, 0);
  const unsigned rows = lower_keys(sorted + begin, static_cast<unsigned>(most), end);
  for (unsigned i = 0; i < rows; ++i) sums.add(gradient, place_of(sorted[begin + i]));
}

/// Sums all chunks of ids' keys but their first ones. A chunk whose first key is number i is row i /
/// chunk_rows of `chunks`: an id's chunks follow each other there, and no two ids share a row.
__global__ void sum_chunks_kernel(View gradient, const Key* sorted, Index count, View chunks) {
  const Index row = Index{blockIdx.x} * warps + threadIdx.x / 32;
  if (row >= chunks.rows) return;
  const Index id = id_of(sorted[row * chunk_rows]);
  const Index first_of_id = lower_keys(sorted, static_cast<unsigned>(count), key_of(id, 0));
  const Index begin =
      first_of_id + (row * chunk_rows - first_of_id + chunk_rows - 1) / chunk_rows * chunk_rows;
  if (begin == first_of_id || begin >= count || id_of(sorted[begin]) != id) return;
  Sums sums(gradient, blockIdx.y);
  add_chunk(gradient, sorted, count, begin, sums);
  sums.set(chunks, row);
}

/// Adds each id's first chunk, and the sums of its others, to its row of the table.
__global__ void add_chunks_kernel(View gradient, const Key* sorted, Index count, View chunks, View table) {
  const Index begin = Index{blockIdx.x} * warps + threadIdx.x / 32;
  if (begin >= count) return;
  const Index id = id_of(sorted[begin]);
  if (begin > 0 && id_of(sorted[begin - 1]) == id) return;
  Sums sums(gradient, blockIdx.y);
  sums.add(table, id);
  add_chunk(gradient, sorted, count, begin, sums);
  for (Index i = begin + chunk_rows; i < count && id_of(sorted[i]) == id; i += chunk_rows)
    sums.add(chunks, i / chunk_rows);
  sums.set(table, id);
}

}  // namespace

std::size_t embedding_scratch(const Tensor& gradient) {
  const auto floats = static_cast<std::size_t>(tiles_of(gradient.rows, chunk_rows) * gradient.cols);
  return 2 * static_cast<std::size_t>(gradient.rows) + (floats + 1) / 2;
}

void embedding_backward(cudaStream_t stream, const Tensor& gradient, const Indices& ids,
                        const Tensor& table_gradient, double* scratch) {
  if (gradient.empty()) return;
  const Index count = ids.size;
  auto* const tiles = reinterpret_cast<Key*>(scratch);
  Key* const sorted = tiles + count;
  const Tensor chunks{sorted + count, tiles_of(count, chunk_rows), gradient.cols, gradient.cols,
                      ddl::DataType::f32};
  const auto blocks = [](Index all, Index each) { return static_cast<unsigned>(tiles_of(all, each)); };
  const unsigned across = blocks(gradient.cols, columns_of_warp);
  launch_kernel(stream, sort_tiles_kernel, blocks(count, tile_keys), tile_keys, ids.data, count, tiles);
  launch_kernel(stream, merge_tiles_kernel, blocks(count, 128), 128, tiles, count, sorted);
  launch_kernel(stream, sum_chunks_kernel, dim3(blocks(chunks.rows, warps), across), block_threads, gradient,
                sorted, count, chunks);
  launch_kernel(stream, add_chunks_kernel, dim3(blocks(count, warps), across), block_threads, gradient,
                sorted, count, chunks, table_gradient);
}

}  // namespace nmt::cuda
