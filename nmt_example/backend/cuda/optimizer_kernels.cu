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

/// Elements, and where their copy is, if there is one.
struct Range {
  Index first, count;
  View copy;
  bool packs;  ///< Whether packs of elements are aligned, here and in the copy.
};
/// What fits into a kernel's 4 KB of parameters.
struct Ranges {
  static constexpr std::size_t most = 48;
  Range range[most];
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

/// Each row of blocks has a range. Block b of a row writes its sums to partial[b] and partial[blocks + b].
template <typename Rule, bool zeroes_gradients, typename Gradient>
__global__ void update_kernel(UpdateArrays<float, Gradient> arrays, UpdateSettings settings,
                              StepFactors given, Ranges ranges, double* partial) {
  const Range& range = ranges.range[blockIdx.y];
  const StepFactors step = settings.factors != nullptr ? *settings.factors : given;
  const UpdateFactors<float> factors = factors_of<float>(settings, step);
  double values = 0, measured = 0;
  const auto visit = [&](Index at, auto width) {
    constexpr int n = width;
    const Index i = range.first + at;
    if (!step.takes) {
      if constexpr (zeroes_gradients) pack_of<n>(arrays.gradients, i) = Pack<Gradient, n>{};
      return;
    }
    UpdateElement<float> elements[n];
    update<Rule, zeroes_gradients>(arrays, factors, i, elements);
    if constexpr (Rule::use.value) {
      if (range.copy.data != nullptr) {
        const auto place = static_cast<unsigned>(at), cols = static_cast<unsigned>(range.copy.cols);
        Pack<float, n> copied;
        for (int k = 0; k < n; ++k) copied[k] = elements[k].value;
        range.copy.store(place / cols, place % cols, copied);
      }
    }
    for (const UpdateElement<float>& e : elements) {
      values += static_cast<double>(e.value) * static_cast<double>(e.value);
      measured += static_cast<double>(e.measured) * static_cast<double>(e.measured);
    }
  };
  const Index step_width = Index{blockDim.x} * update_width;
  for (Index begin = blockIdx.x * step_width; begin < range.count; begin += gridDim.x * step_width)
    for_pack<update_width>(range.packs, begin, threadIdx.x, blockDim.x, range.count, visit);
  if (partial == nullptr) return;
  values = block_sum(values);
  measured = block_sum(measured);
  if (threadIdx.x != 0) return;
  partial[blockIdx.x] = values;
  partial[gridDim.x + blockIdx.x] = measured;
}

/// Block b adds up the b-th `count` partial sums.
__global__ void totals_kernel(const double* partial, Index count, double share, double* totals) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += partial[blockIdx.x * count + i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) totals[blockIdx.x] += share * sum;
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

/// The number of blocks fixes the order of sums, so it depends on the size alone.
Index blocks_for(Index count) {
  return std::min<Index>((count + block_threads - 1) / block_threads, static_cast<Index>(update_blocks));
}

/// All elements, with and without copies.
std::vector<Range> ranges_of(const UpdateTensors& tensors, std::span<const CopiedRange> copied) {
  const auto is_aligned = [](const Tensor& x) {
    const std::size_t pack = update_width * ddl::size_of(x.type);
    return x.empty() || reinterpret_cast<std::uintptr_t>(x.data) % pack == 0;
  };
  const bool begin_aligned = is_aligned(tensors.values) && is_aligned(tensors.gradients) &&
                             is_aligned(tensors.m) && is_aligned(tensors.v);
  std::vector<Range> ranges;
  const auto append = [&](Index first, Index count, const Tensor& copy) {
    const bool packs = begin_aligned && first % update_width == 0 && copy.cols % update_width == 0 &&
                       copy.stride % update_width == 0;
    ranges.push_back({first, count, copy, packs});
  };
  const Index count = tensors.values.size();
  Index end = 0;
  for (const CopiedRange& range : copied) {
    if (range.first > end) append(end, range.first - end, Tensor());
    append(range.first, range.count, range.copy);
    end = range.first + range.count;
  }
  if (count > end) append(end, count - end, Tensor());
  return ranges;
}

}  // namespace

void end_step(cudaStream_t stream, const StepRules& rules, const StepInput& input, StepState* state,
              StepRecord* record) {
  launch_kernel(stream, end_step_kernel, 1, 1, rules, input, state, record);
}

void largest_magnitude(cudaStream_t stream, const Tensor& x, const Tensor& result, double* scratch) {
  const Index blocks = blocks_for(x.size());
  if (blocks == 0) return;
  with_type(x.type, [&]<typename T>(T) {
    launch_kernel(stream, largest_kernel<T>, static_cast<unsigned>(blocks), block_threads, x.as<T>(),
                  x.size(), scratch);
  });
  launch_kernel(stream, largest_of_kernel, 1, block_threads, scratch, blocks, result.as<double>());
}

void update(cudaStream_t stream, UpdateRule rule, const UpdateTensors& tensors,
            const UpdateSettings& settings, double* scratch, std::span<const CopiedRange> copied) {
  const std::vector<Range> all = ranges_of(tensors, copied);
  Index largest = 0;
  for (const Range& range : all) largest = std::max(largest, range.count);
  const Index blocks = blocks_for(largest);
  for (std::size_t begin = 0; begin < all.size(); begin += Ranges::most) {
    const std::size_t count = std::min(all.size() - begin, Ranges::most);
    Ranges ranges{};
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(begin), count, ranges.range);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
    with_type(tensors.gradients.type, [&]<typename Gradient>(Gradient) {
      with_rule(rule, [&](const auto& chosen) {
        using Rule = std::decay_t<decltype(chosen)>;
        const auto kernel = settings.zero_gradients ? update_kernel<Rule, true, Gradient>
                                                    : update_kernel<Rule, false, Gradient>;
        launch_kernel(stream, kernel, grid, block_threads, UpdateArrays<float, Gradient>(tensors), settings,
                      given_factors(settings), ranges, scratch);
      });
    });
  }
  if (tensors.sums.empty()) return;
  launch_kernel(stream, totals_kernel, 2, block_threads, scratch, blocks, settings.sums_share,
                tensors.sums.as<double>());
}

void scale_layers(cudaStream_t stream, const LayerScaling& scaling, const StepFactors* step,
                  const Tensor& sums, float* second_moments, Layer* layers) {
  const auto blocks = static_cast<unsigned>((sums.rows + block_threads - 1) / block_threads);
  launch_kernel(stream, scale_layers_kernel, blocks, block_threads, scaling, step, sums.as<double>(),
                second_moments, layers, sums.rows);
}

}  // namespace nmt::cuda
