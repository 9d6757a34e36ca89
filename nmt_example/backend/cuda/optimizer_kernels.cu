#include <vector>

#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"
#include "nmt_example/backend/update_rules.hpp"

namespace nmt::cuda {
namespace {

struct DeviceMath {
  __device__ static float sqrt(float x) { return sqrtf(x); }
};

/// Elements that a thread updates at once, if they lie as packs.
constexpr int update_width = 4;

/// Elements that a block updates, at most. Blocks are dealt out by elements, so that a large layer among many
/// small ones keeps the whole device busy.
constexpr Index block_elements = 4096;

/// A range, or the part of it that has the same copy, if there is one.
struct Piece {
  UpdateRange range;
  void* copy = nullptr;
  unsigned copy_first = 0;  ///< The index of the piece's first element in it.
  unsigned copy_cols = 0, copy_stride = 0;
  unsigned first_block = 0;
  ddl::DataType copy_type = ddl::DataType::f32;
  bool packs = false;  ///< Whether packs of elements are aligned, here and in the copy.
};
/// What fits into a kernel's 4 KB of parameters.
struct Pieces {
  static constexpr unsigned most = 48;
  unsigned count = 0, blocks = 0;
  Piece piece[most];

  __device__ unsigned first_block(unsigned p) const { return p < count ? piece[p].first_block : blocks; }
  /// The piece that a block updates a part of.
  __device__ const Piece& of_block(unsigned block) const {
    unsigned begin = 0, end = count;
    while (end - begin > 1) {
      const unsigned middle = (begin + end) / 2;
      (piece[middle].first_block <= block ? begin : end) = middle;
    }
    return piece[begin];
  }
};

/// Consecutive elements of an array, as one pack.
template <int n, typename T>
__device__ Pack<T, n>& pack_of(T* array, Index i) {
  return *reinterpret_cast<Pack<T, n>*>(array + i);
}

/// Updates elements [i, i + n); returns what they are then, and what was measured of them.
template <typename Rule, bool zeroes_gradients, int n, typename Gradient>
__device__ void update(const UpdateArrays<float, Gradient>& arrays, const UpdateFactors<float>& factors,
                       Index i, UpdateElement<float> (&elements)[n]) {
  constexpr UpdateUse use = Rule::use;
  Pack<float, n> values = pack_of<n>(arrays.values, i), m{}, v{};
  Pack<Gradient, n> gradients{};
  if constexpr (use.gradient) gradients = pack_of<n>(arrays.gradients, i);
  if constexpr (use.m) m = pack_of<n>(arrays.m, i);
  if constexpr (use.v) v = pack_of<n>(arrays.v, i);
  for (int k = 0; k < n; ++k) {
    UpdateElement<float>& e = elements[k];
    e = {values[k], use.gradient ? wide(gradients[k]) : 0.0f, m[k], v[k], 0};
    Rule::template apply<DeviceMath>(factors, e);
    values[k] = e.value;
    m[k] = e.m;
    v[k] = e.v;
  }
  if constexpr (use.value) pack_of<n>(arrays.values, i) = values;
  if constexpr (use.moments && use.m) pack_of<n>(arrays.m, i) = m;
  if constexpr (use.moments && use.v) pack_of<n>(arrays.v, i) = v;
  if constexpr (zeroes_gradients) pack_of<n>(arrays.gradients, i) = Pack<Gradient, n>{};
}

/// Block b writes its sums to partial[2 b] and partial[2 b + 1].
template <typename Rule, bool zeroes_gradients, typename Gradient>
__global__ void update_kernel(UpdateArrays<float, Gradient> arrays, UpdateSettings settings,
                              StepFactors given, const __grid_constant__ Pieces pieces, double* partial) {
  const Piece& piece = pieces.of_block(blockIdx.x);
  const UpdateRange& range = piece.range;
  arrays.values += range.first;
  arrays.gradients += range.first;
  if constexpr (Rule::use.m) arrays.m += range.moment;
  if constexpr (Rule::use.v) arrays.v += range.moment;
  __shared__ UpdateFactors<float> of_block;
  __shared__ bool is_taken;
  if (threadIdx.x == 0) {
    const StepFactors step = step_of(settings, range.layer, given);
    of_block = factors_of<float>(settings, range.decays, step);
    is_taken = step.takes;
  }
  __syncthreads();
  const UpdateFactors<float> factors = of_block;
  const bool takes = is_taken;
  double values = 0, measured = 0;
  const auto visit = [&](Index i, auto width) {
    constexpr int n = width;
    if (!takes) {
      if constexpr (zeroes_gradients) pack_of<n>(arrays.gradients, i) = Pack<Gradient, n>{};
      return;
    }
    UpdateElement<float> elements[n];
    update<Rule, zeroes_gradients>(arrays, factors, i, elements);
    if constexpr (Rule::use.value) {
      if (piece.copy != nullptr) {
        Pack<float, n> copied;
        for (int k = 0; k < n; ++k) copied[k] = elements[k].value;
        View copy;
        copy.data = piece.copy;
        copy.stride = piece.copy_stride;
        copy.type = piece.copy_type;
        const unsigned place = piece.copy_first + static_cast<unsigned>(i);
        copy.store(place / piece.copy_cols, place % piece.copy_cols, copied);
      }
    }
    if constexpr (Rule::use.measures) {
      for (const UpdateElement<float>& e : elements) {
        values += static_cast<double>(e.value) * static_cast<double>(e.value);
        measured += static_cast<double>(e.measured) * static_cast<double>(e.measured);
      }
    }
  };
  const Index first = Index{blockIdx.x - piece.first_block} * block_elements;
  const Index end = range.count < first + block_elements ? range.count : first + block_elements;
  for (Index begin = first; begin < end; begin += Index{blockDim.x} * update_width)
    for_pack<update_width>(piece.packs, begin, threadIdx.x, blockDim.x, end, visit);
  if constexpr (Rule::use.measures) {
    values = block_sum(values);
    measured = block_sum(measured);
    if (threadIdx.x != 0) return;
    partial[2 * blockIdx.x] = values;
    partial[2 * blockIdx.x + 1] = measured;
  }
}

/// The block of a layer's first piece adds up the sums of all its pieces.
__global__ void totals_kernel(const __grid_constant__ Pieces pieces, const double* partial, double* totals) {
  unsigned p = blockIdx.x;
  const std::int32_t layer = pieces.piece[p].range.layer;
  if (p > 0 && pieces.piece[p - 1].range.layer == layer) return;
  double values = 0, measured = 0;
  for (; p < pieces.count && pieces.piece[p].range.layer == layer; ++p) {
    const double share = pieces.piece[p].range.sums_share;
    for (unsigned b = pieces.first_block(p) + threadIdx.x; b < pieces.first_block(p + 1); b += blockDim.x) {
      values += share * partial[2 * b];
      measured += share * partial[2 * b + 1];
    }
  }
  values = block_sum(values);
  measured = block_sum(measured);
  if (threadIdx.x != 0) return;
  totals[2 * layer] += values;
  totals[2 * layer + 1] += measured;
}

template <typename T>
__global__ void largest_kernel(const T* x, Index count, double* partial) {
  float largest = 0;
  for (Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += Index{gridDim.x} * blockDim.x)
    largest = fmaxf(largest, fabsf(wide(x[i])));
  largest = block_max(largest);
  if (threadIdx.x == 0) partial[blockIdx.x] = static_cast<double>(largest);
}

__global__ void largest_of_kernel(const double* partial, Index count, double* result) {
  float largest = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x)
    largest = fmaxf(largest, static_cast<float>(partial[i]));
  largest = block_max(largest);
  if (threadIdx.x == 0) *result = fmax(*result, static_cast<double>(largest));
}

/// A thread scales a layer.
__global__ void scale_layers_kernel(LayerScaling scaling, const StepFactors* step, const double* sums,
                                    float* second_moments, Layer* layers, Index count) {
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float* const second_moment = second_moments != nullptr ? second_moments + i : nullptr;
  scale_layer(scaling, *step, sums + 2 * i, second_moment, layers[i]);
}

__global__ void end_step_kernel(StepRules rules, StepInput input, StepState* state, StepRecord* record) {
  nmt::end_step(rules, input, *state, *record);
}

Index blocks_of(Index count) { return (count + block_elements - 1) / block_elements; }

/// The ranges' elements, with and without copies.
std::vector<Pieces> pieces_of(const UpdateTensors& tensors, std::span<const UpdateRange> ranges,
                              std::span<const CopiedRange> copied) {
  const auto is_aligned = [](const Tensor& x) {
    const std::size_t pack = update_width * ddl::size_of(x.type);
    return x.empty() || reinterpret_cast<std::uintptr_t>(x.data) % pack == 0;
  };
  const bool begin_aligned = is_aligned(tensors.values) && is_aligned(tensors.gradients) &&
                             is_aligned(tensors.m) && is_aligned(tensors.v);
  std::vector<Pieces> all;
  const auto append = [&](UpdateRange range, Index first, Index end, const CopiedRange* copy) {
    if (all.empty() || all.back().count == Pieces::most) all.emplace_back();
    range.moment += first - range.first;
    range.first = first;
    range.count = end - first;
    Piece& piece = all.back().piece[all.back().count++];
    piece.range = range;
    piece.first_block = all.back().blocks;
    all.back().blocks += static_cast<unsigned>(blocks_of(range.count));
    piece.packs = begin_aligned && range.first % update_width == 0 && range.moment % update_width == 0;
    if (copy == nullptr) return;
    piece.copy = copy->copy.data;
    piece.copy_first = static_cast<unsigned>(first - copy->first);
    piece.copy_cols = static_cast<unsigned>(copy->copy.cols);
    piece.copy_stride = static_cast<unsigned>(copy->copy.stride);
    piece.copy_type = copy->copy.type;
    for (const unsigned n : {piece.copy_first, piece.copy_cols, piece.copy_stride})
      piece.packs = piece.packs && n % update_width == 0;
  };
  auto copy = copied.begin();
  for (const UpdateRange& range : ranges) {
    const Index end = range.first + range.count;
    for (Index at = range.first, next = at; at < end; at = next) {
      while (copy != copied.end() && copy->first + copy->count <= at) ++copy;
      const bool has_copy = copy != copied.end() && copy->first <= at;
      if (copy == copied.end())
        next = end;
      else
        next = std::min(end, has_copy ? copy->first + copy->count : copy->first);
      append(range, at, next, has_copy ? &*copy : nullptr);
    }
  }
  return all;
}

}  // namespace

void end_step(cudaStream_t stream, const StepRules& rules, const StepInput& input, StepState* state,
              StepRecord* record) {
  launch_kernel(stream, end_step_kernel, 1, 1, rules, input, state, record);
}

void largest_magnitude(cudaStream_t stream, const Tensor& x, const Tensor& result, double* scratch) {
  const Index blocks = std::min<Index>((x.size() + block_threads - 1) / block_threads,
                                       static_cast<Index>(most_partial_results));
  if (blocks == 0) return;
  with_type(x.type, [&]<typename T>(T) {
    launch_kernel(stream, largest_kernel<T>, static_cast<unsigned>(blocks), block_threads, x.as<T>(),
                  x.size(), scratch);
  });
  launch_kernel(stream, largest_of_kernel, 1, block_threads, scratch, blocks, result.as<double>());
}

std::size_t update_scratch(std::span<const UpdateRange> ranges) {
  Index blocks = 0;
  for (const UpdateRange& range : ranges) blocks += blocks_of(range.count);
  return static_cast<std::size_t>(2 * blocks);
}

void update(cudaStream_t stream, UpdateRule rule, const UpdateTensors& tensors,
            const UpdateSettings& settings, std::span<const UpdateRange> ranges,
            std::span<const CopiedRange> copied, double* scratch) {
  for (const Pieces& pieces : pieces_of(tensors, ranges, copied)) {
    with_type(tensors.gradients.type, [&]<typename Gradient>(Gradient) {
      with_rule(rule, [&](const auto& chosen) {
        using Rule = std::decay_t<decltype(chosen)>;
        const auto kernel = settings.zero_gradients ? update_kernel<Rule, true, Gradient>
                                                    : update_kernel<Rule, false, Gradient>;
        launch_kernel(stream, kernel, pieces.blocks, block_threads, UpdateArrays<float, Gradient>(tensors),
                      settings, given_factors(settings), pieces, scratch);
      });
    });
    if (!use_of(rule).measures) continue;
    launch_kernel(stream, totals_kernel, pieces.count, block_threads, pieces, scratch,
                  tensors.sums.as<double>());
  }
}

void scale_layers(cudaStream_t stream, const LayerScaling& scaling, const StepFactors* step,
                  const Tensor& sums, float* second_moments, Layer* layers) {
  const auto blocks = static_cast<unsigned>((sums.rows + block_threads - 1) / block_threads);
  launch_kernel(stream, scale_layers_kernel, blocks, block_threads, scaling, step, sums.as<double>(),
                second_moments, layers, sums.rows);
}

}  // namespace nmt::cuda
