#include <mma.h>

#include <algorithm>

#include "nmt_example/backend/cuda/lstm_cell.cuh"
#include "nmt_example/backend/cuda/persistent_lstm.hpp"

namespace nmt::cuda {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int tile = 16;
constexpr int warps = 8;
constexpr int skew = 8;  // elements after a row of weights, so that rows begin in different banks

template <typename T>
constexpr bool has_products = true;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <>
constexpr bool has_products<__nv_bfloat16> = false;
#endif

/// Waits until all blocks have arrived so often that they are `target` together, and sees what they have
/// written before.
__device__ void meet_blocks(unsigned* arrived, unsigned target) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*static_cast<volatile unsigned*>(arrived) < target) __nanosleep(32);
    __threadfence();
  }
  __syncthreads();
}

/// The tiles of a product that the block's warps compute at a time. Where there are fewer tiles than warps,
/// several warps share one, each with a part of the depth.
struct Tiles {
  int rows, columns;
  __host__ __device__ int count() const { return rows * columns; }
  __host__ __device__ int parts() const { return warps / count(); }
  /// Element (r, c) of the product.
  __device__ float sum(const float* sums, int r, int c) const {
    float total = 0;
    for (int part = 0; part < parts(); ++part) total += sums[((part * rows * tile) + r) * columns * tile + c];
    return total;
  }
};

/// The tiles' parts of a [rows, depth] times b [depth, columns], whose layout is `Layout`. A barrier must
/// follow.
template <typename Layout, typename T>
__device__ void multiply(const Tiles& tiles, const T* a, unsigned a_stride, const T* b, unsigned b_stride,
                         int depth, float* sums) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int part = warp / tiles.count(), number = warp % tiles.count();
  if (part >= tiles.parts()) return;
  const int row = number % tiles.rows * tile, column = number / tiles.rows * tile;
  wmma::fragment<wmma::accumulator, tile, tile, tile, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = part * tile; k < depth; k += tiles.parts() * tile) {
    wmma::fragment<wmma::matrix_a, tile, tile, tile, T, wmma::row_major> of_a;
    wmma::fragment<wmma::matrix_b, tile, tile, tile, T, Layout> of_b;
    wmma::load_matrix_sync(of_a, a + Index{row} * a_stride + k, a_stride);
    const Index place =
        std::is_same_v<Layout, wmma::row_major> ? Index{k} * b_stride + column : Index{column} * b_stride + k;
    wmma::load_matrix_sync(of_b, b + place, b_stride);
    wmma::mma_sync(sum, of_a, of_b, sum);
  }
  const int columns = tiles.columns * tile;
  wmma::store_matrix_sync(sums + (part * tiles.rows * tile + row) * columns + column, sum,
                          static_cast<unsigned>(columns), wmma::mem_row_major);
}

/// The layer's parts that both passes need.
struct Layer {
  View gates, h, c, tanh_c, output, weights, bias;
  const std::int32_t* lengths;
  Index steps, batch;
  int units, slice;
  float forget_bias;
  bool backwards;

  Layer(const Backend::LstmLayer& layer, int slice_)
      : gates(layer.gates),
        h(layer.h),
        c(layer.c),
        tanh_c(layer.tanh_c),
        output(layer.output),
        weights(layer.kernel.row_range(layer.x.cols, layer.h.cols)),
        bias(layer.bias),
        lengths(layer.lengths.size != 0 ? layer.lengths.data : nullptr),
        batch(layer.h.rows - layer.gates.rows),
        units(static_cast<int>(layer.h.cols)),
        slice(slice_),
        forget_bias(static_cast<float>(layer.forget_bias)),
        backwards(layer.reads_backwards) {
    steps = layer.gates.rows / batch;
  }
  __device__ Index step(Index nth) const { return backwards ? steps - 1 - nth : nth; }
  /// Rows of h and c.
  __device__ Index before(Index t) const { return (backwards ? t + 1 : t) * batch; }
  __device__ Index after(Index t) const { return (backwards ? t : t + 1) * batch; }
  __device__ bool is_masked(Index t, Index b) const { return lengths != nullptr && t >= lengths[b]; }
};

Index padded(Index batch) { return (batch + warps * tile - 1) / (warps * tile) * (warps * tile); }

/// As many rows of tiles as there are warps and sentences for.
Tiles tiles_of(Index batch, int columns) {
  const int of_columns = columns / tile;
  const auto rows = static_cast<int>((batch + tile - 1) / tile);
  return {std::min(warps / of_columns, rows), of_columns};
}

template <typename T>
__global__ void forward_kernel(Layer layer, Tiles tiles, Index rows, T* exchange, unsigned* arrived) {
  if constexpr (has_products<T>) {
    float* const sums = reinterpret_cast<float*>(dynamic_shared_memory());
    T* const weights = reinterpret_cast<T*>(sums + warps * tile * tile);
    const int units = layer.units, slice = layer.slice, columns = 4 * slice, stride = columns + skew;
    const Index first = Index{blockIdx.x} * slice;
    for (int i = static_cast<int>(threadIdx.x); i < units * columns; i += static_cast<int>(blockDim.x)) {
      const int k = i / columns, column = i % columns;
      narrow(layer.weights(k, Index{column / slice} * units + first + column % slice),
             weights[k * stride + column]);
    }
    __syncthreads();
    for (Index i = 0; i < layer.steps; ++i) {
      const Index t = layer.step(i);
      const T* const from = exchange + i % 2 * rows * units;
      T* const to = exchange + (i + 1) % 2 * rows * units;
      for (Index row = 0; row < layer.batch; row += tiles.rows * tile) {
        multiply<wmma::row_major>(tiles, from + row * units, static_cast<unsigned>(units), weights,
                                  static_cast<unsigned>(stride), units, sums);
        __syncthreads();
        for (int place = static_cast<int>(threadIdx.x); place < tiles.rows * tile * slice;
             place += static_cast<int>(blockDim.x)) {
          const int r = place / slice, of_block = place % slice;
          const Index b = row + r, u = first + of_block, at = t * layer.batch + b;
          if (b >= layer.batch) continue;
          float c = layer.c(layer.before(t) + b, u), h = wide(from[b * units + u]), output = 0;
          if (!layer.is_masked(t, b)) {
            LstmGates gates = lstm_gates(layer.gates, at, u);
            const LstmGates bias = lstm_gates(layer.bias, 0, u);
            gates.i += tiles.sum(sums, r, of_block) + bias.i;
            gates.j += tiles.sum(sums, r, slice + of_block) + bias.j;
            gates.f += tiles.sum(sums, r, 2 * slice + of_block) + bias.f + layer.forget_bias;
            gates.o += tiles.sum(sums, r, 3 * slice + of_block) + bias.o;
            const float tanh_c = lstm_forward(gates, c);
            h = output = gates.o * tanh_c;
            set_lstm_gates(layer.gates, at, u, gates);
            layer.tanh_c.set(at, u, tanh_c);
          }
          layer.c.set(layer.after(t) + b, u, c);
          layer.h.set(layer.after(t) + b, u, h);
          narrow(h, to[b * units + u]);
          if (layer.output.data != nullptr) layer.output.set(at, u, output);
        }
        __syncthreads();
      }
      meet_blocks(arrived, static_cast<unsigned>(i + 1) * gridDim.x);
    }
  }
}

template <typename T>
__global__ void backward_kernel(Layer layer, Tiles tiles, Index rows, View d_output, View d_h, View d_c,
                                float* state, T* exchange, unsigned* arrived) {
  if constexpr (has_products<T>) {
    float* const sums = reinterpret_cast<float*>(dynamic_shared_memory());
    T* const weights = reinterpret_cast<T*>(sums + warps * tile * tile);
    const int units = layer.units, slice = layer.slice, depth = 4 * units, stride = depth + skew;
    const Index first = Index{blockIdx.x} * slice;
    for (int i = static_cast<int>(threadIdx.x); i < slice * depth; i += static_cast<int>(blockDim.x))
      narrow(layer.weights(first + i / depth, i % depth), weights[i / depth * stride + i % depth]);
    const auto for_own = [&](const auto& f) {
      for (Index place = threadIdx.x; place < layer.batch * slice; place += blockDim.x)
        f(place / slice, first + place % slice);
    };
    for_own([&](Index b, Index u) { state[b * units + u] = d_h(b, u); });
    __syncthreads();
    for (Index i = layer.steps; i-- > 0;) {
      const Index t = layer.step(i);
      T* const given = exchange + i % 2 * rows * depth;
      for_own([&](Index b, Index u) {
        const Index at = t * layer.batch + b;
        float& d_above = state[b * units + u];
        LstmGates gates{};
        if (!layer.is_masked(t, b)) {
          gates = lstm_gates(layer.gates, at, u);
          float d_cell = d_c(b, u);
          lstm_backward(gates, layer.tanh_c(at, u), layer.c(layer.before(t) + b, u),
                        d_above + d_output(at, u), d_cell);
          d_c.set(b, u, d_cell);
          d_above = 0;
        }
        set_lstm_gates(layer.gates, at, u, gates);
        T* const row = given + b * depth + u;
        narrow(gates.i, row[0]);
        narrow(gates.j, row[units]);
        narrow(gates.f, row[2 * units]);
        narrow(gates.o, row[3 * units]);
      });
      meet_blocks(arrived, static_cast<unsigned>(layer.steps - i) * gridDim.x);
      for (Index row = 0; row < layer.batch; row += tiles.rows * tile) {
        multiply<wmma::col_major>(tiles, given + row * depth, static_cast<unsigned>(depth), weights,
                                  static_cast<unsigned>(stride), depth, sums);
        __syncthreads();
        for (int place = static_cast<int>(threadIdx.x); place < tiles.rows * tile * slice;
             place += static_cast<int>(blockDim.x)) {
          const int r = place / slice, of_block = place % slice;
          if (row + r < layer.batch)
            state[(row + r) * units + first + of_block] += tiles.sum(sums, r, of_block);
        }
        __syncthreads();
      }
    }
    for_own([&](Index b, Index u) { d_h.set(b, u, state[b * units + u]); });
  }
}

constexpr std::size_t sums_bytes = sizeof(float) * warps * tile * tile;

template <typename T>
std::size_t shared_bytes(std::int64_t rows, std::int64_t columns) {
  return sums_bytes + sizeof(T) * static_cast<std::size_t>(rows * (columns + skew));
}

int attribute(cudaDeviceAttr name) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, name, device);
  return value;
}

template <typename T>
PersistentPlan plan_of(std::int64_t units) {
  const int multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  const int shared = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (attribute(cudaDevAttrCooperativeLaunch) == 0) return {};
  for (const int slice : {tile, 2 * tile}) {
    if (units % slice != 0 || units / slice > multiprocessors) continue;
    const PersistentPlan plan{slice, shared_bytes<T>(units, 4 * slice), shared_bytes<T>(slice, 4 * units)};
    if (std::max(plan.forward_bytes, plan.backward_bytes) > static_cast<std::size_t>(shared)) continue;
    if (allow_shared_memory(forward_kernel<T>, plan.forward_bytes) &&
        allow_shared_memory(backward_kernel<T>, plan.backward_bytes))
      return plan;
  }
  return {};
}

}  // namespace

PersistentPlan persistent_plan(std::int64_t units, ddl::DataType type) {
  PersistentPlan plan;
  with_narrow_type(type, [&]<typename T>(T) { plan = plan_of<T>(units); });
  return plan;
}

std::size_t persistent_exchange_bytes(std::int64_t batch, std::int64_t columns) {
  return 2 * sizeof(__half) * static_cast<std::size_t>(padded(batch) * columns);
}

void persistent_lstm_forward(cudaStream_t stream, const PersistentPlan& plan, const Backend::LstmLayer& layer,
                             const PersistentMemory& memory) {
  const Layer parts(layer, plan.slice);
  with_narrow_type(layer.h.type, [&]<typename T>(T) {
    launch_together(stream, forward_kernel<T>, static_cast<unsigned>(parts.units / plan.slice), 32 * warps,
                    plan.forward_bytes, parts, tiles_of(parts.batch, 4 * plan.slice), padded(parts.batch),
                    static_cast<T*>(memory.exchange), memory.arrived);
  });
}

void persistent_lstm_backward(cudaStream_t stream, const PersistentPlan& plan,
                              const Backend::LstmLayer& layer, const Backend::LstmLayerBackward& gradients,
                              const PersistentMemory& memory) {
  const Layer parts(layer, plan.slice);
  with_narrow_type(layer.h.type, [&]<typename T>(T) {
    launch_together(stream, backward_kernel<T>, static_cast<unsigned>(parts.units / plan.slice), 32 * warps,
                    plan.backward_bytes, parts, tiles_of(parts.batch, plan.slice), padded(parts.batch),
                    View(gradients.d_output), View(gradients.d_h), View(gradients.d_c), memory.state,
                    static_cast<T*>(memory.exchange), memory.arrived);
  });
}

}  // namespace nmt::cuda
