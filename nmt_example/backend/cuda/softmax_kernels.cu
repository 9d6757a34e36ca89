#include "nmt_example/backend/cuda/device.cuh"
#include "nmt_example/backend/cuda/kernels.hpp"
#include "nmt_example/backend/log_probability_rows.hpp"

namespace nmt::cuda {
namespace {

/// At most; many, so that few rows are read at a time, and the L2 cache holds them until they are read again.
constexpr unsigned row_threads = 1024;

/// The largest of a thread's numbers, and the sum of exp(x - largest).
struct ExpSum {
  float largest = -INFINITY, sum = 0;

  template <int n>
  __device__ void add(const Pack<float, n>& x) {
    float most = x[0];
    for (int k = 1; k < n; ++k) most = fmaxf(most, x[k]);
    if (most > largest) {
      sum *= expf(largest - most);
      largest = most;
    }
    const float base = largest > -INFINITY ? largest : 0.0f;
    for (int k = 0; k < n; ++k) sum += expf(x[k] - base);
  }
  /// The sum of the block's threads, whose largest number is `largest` then.
  __device__ double of_block() {
    const float own = largest;
    largest = block_max(own);
    return block_sum(static_cast<double>(own > -INFINITY ? sum * expf(own - largest) : sum));
  }
};

/// What a block needs to know of the rows' losses.
template <typename T>
struct CrossEntropy {
  Matrix<float> logits;
  Index vocabulary;
  bool packs;
  const std::int32_t* targets;
  float label_smoothing;
  Matrix<T> gradient;
  const double* scale;
  double* row_losses;
};

/// Of logits [first, first + n) of the block's row; 0 where there are none.
template <int n>
__device__ Pack<float, n> some_logits(const Matrix<float>& logits, Index first, Index vocabulary) {
  if (first + n <= vocabulary) return logits.load(blockIdx.x, first, Width<n>());
  Pack<float, n> x{};
  for (int k = 0; k < n; ++k)
    if (first + k < vocabulary) x[k] = logits.load(blockIdx.x, first + k, Width<1>())[0];
  return x;
}

template <int n, typename T>
__device__ void compute_cross_entropy(const CrossEntropy<T>& all) {
  const Index r = blockIdx.x, vocabulary = all.vocabulary;
  const Index begin = Index{threadIdx.x} * n, step = Index{blockDim.x} * n;
  const std::int32_t target = all.targets[r];
  if (target < 0) {
    if (threadIdx.x == 0) all.row_losses[2 * r] = all.row_losses[2 * r + 1] = 0;
    if (all.gradient.data == nullptr) return;
    for_columns<n>(all.packs, vocabulary,
                   [&](Index v, auto width) { all.gradient.store(r, v, Pack<float, width>{}); });
    return;
  }
  ExpSum exps;
  float logit_sum_of_thread = 0;
  for_columns<n>(all.packs, vocabulary, [&](Index v, auto width) {
    const auto x = all.logits.load(r, v, width);
    exps.add(x);
    for (int k = 0; k < width; ++k) logit_sum_of_thread += x[k];
  });
  const double sum = exps.of_block();
  const float largest = exps.largest;
  const double logit_sum = block_sum(static_cast<double>(logit_sum_of_thread));
  if (threadIdx.x == 0) {
    const double log_sum = log(sum);
    const float of_target = all.logits.load(r, target, Width<1>())[0];
    const double nll = log_sum - static_cast<double>(of_target - largest);
    const double uniform =
        log_sum - (logit_sum / static_cast<double>(vocabulary) - static_cast<double>(largest));
    const auto smoothing = static_cast<double>(all.label_smoothing);
    all.row_losses[2 * r] = nll;
    all.row_losses[2 * r + 1] = smoothing > 0 ? (1.0 - smoothing) * nll + smoothing * uniform : nll;
  }
  if (all.gradient.data == nullptr) return;
  __syncthreads();  // the target's logit has been read
  const auto factor = static_cast<float>(1.0 / sum);
  const float of_loss = all.scale != nullptr ? static_cast<float>(*all.scale) : 1.0f;
  const float floor = all.label_smoothing / static_cast<float>(vocabulary);
  for (Index first = 0; first < vocabulary; first += step) {
    const Index v = first + begin;
    Pack<float, n> d = some_logits<n>(all.logits, v, vocabulary);
    for (int k = 0; k < n; ++k) {
      const float wanted = v + k == target ? 1.0f - all.label_smoothing : 0.0f;
      d[k] = of_loss * (expf(d[k] - largest) * factor - floor - wanted);
    }
    // A narrow gradient lies where logits of lower columns are, all of which have been read by then.
    if constexpr (!std::is_same_v<T, float>) __syncthreads();
    if (v + n <= vocabulary) {
      all.gradient.store(r, v, d);
      continue;
    }
    for (int k = 0; k < n; ++k)
      if (v + k < vocabulary) all.gradient.store(r, v + k, Pack<float, 1>{{d[k]}});
  }
}

template <typename T>
__global__ void cross_entropy_kernel(CrossEntropy<T> all) {
  all.packs ? compute_cross_entropy<pack_width<T>>(all) : compute_cross_entropy<1>(all);
}

__global__ void add_row_losses_kernel(const double* row_losses, Index rows, double* sums) {
  double nll = 0, smoothed = 0;
  for (Index r = threadIdx.x; r < rows; r += blockDim.x) {
    nll += row_losses[2 * r];
    smoothed += row_losses[2 * r + 1];
  }
  nll = block_sum(nll);
  smoothed = block_sum(smoothed);
  if (threadIdx.x != 0) return;
  sums[0] += nll;
  sums[1] += smoothed;
}

constexpr int logits_width = pack_width<float>;

/// A block's row of logits, and its log-probabilities.
struct LogitsRow {
  Matrix<float> logits;
  Index vocabulary;
  bool packs;
  float largest = 0, log_sum = 0;

  LogitsRow(const Tensor& x) : logits(x), vocabulary(x.cols), packs(moves_packs(x)) {}
  /// Calls f(column, values) for a thread's packs of columns.
  template <typename F>
  __device__ void for_packs(const F& f) const {
    for_columns<logits_width>(packs, vocabulary,
                              [&](Index v, auto n) { f(v, logits.load(blockIdx.x, v, n), n); });
  }
  __device__ void sum_up() {
    ExpSum exps;
    for_packs([&](Index, const auto& x, auto) { exps.add(x); });
    log_sum = static_cast<float>(log(exps.of_block()));
    largest = exps.largest;
  }
  /// After `sum_up`.
  __device__ float log_probability(float x) const { return (x - largest) - log_sum; }
  __device__ float log_probability_of(Index v) const { return log_probability(logits(blockIdx.x, v)); }
};

__global__ void log_softmax_kernel(LogitsRow row) {
  row.sum_up();
  row.for_packs([&](Index v, auto x, auto n) {
    for (int k = 0; k < n; ++k) x[k] = row.log_probability(x[k]);
    row.logits.store(blockIdx.x, v, x);
  });
}

struct Larger {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

/// Greater for greater values and, if these are equal, for the lower column; neither 0 nor the largest key.
__device__ unsigned long long key_of(float value, Index column) {
  const unsigned bits = __float_as_uint(value);
  const unsigned ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | (0xfffffffeu - static_cast<unsigned>(column));
}

/// Finds the best columns one after the other: each is the best of those that are worse than the one before.
__global__ void best_log_softmax_kernel(LogitsRow row, Index also, Index count, double* best, Index stride) {
  double* const found = best + blockIdx.x * stride;
  row.sum_up();
  unsigned long long before = ~0ull;
  for (Index i = 0; i < count; ++i) {
    unsigned long long key = 0;
    row.for_packs([&](Index v, const auto& x, auto n) {
      for (int k = 0; k < n; ++k) {
        const unsigned long long other = key_of(row.log_probability(x[k]), v + k);
        if (other < before) key = Larger{}(key, other);
      }
    });
    before = reduce_block(key, 0ull, Larger{});
    if (threadIdx.x != 0) continue;
    const Index column = 0xfffffffeu - static_cast<unsigned>(before);
    found[i] = static_cast<double>(column);
    found[count + i] = row.log_probability_of(column);
  }
  if (threadIdx.x == 0) found[2 * count] = row.log_probability_of(also);
}

/// The threads of a block.
struct RowThreads {
  __device__ static Index first() { return threadIdx.x; }
  __device__ static Index step() { return blockDim.x; }
  template <typename Number>
  __device__ static Number max(Number mine) {
    return reduce_block(mine, mine, Larger{});  // its own number changes nothing
  }
  __device__ static double sum_before(double mine) {
    __shared__ double of_thread[row_threads], of_warp[row_threads / 32];
    const unsigned warp = threadIdx.x / 32;
    const double sum = reduce_warp(mine, Add{});
    __syncthreads();  // what an earlier call has left may still be read
    of_thread[threadIdx.x] = mine;
    if (threadIdx.x % 32 == 0) of_warp[warp] = sum;
    __syncthreads();
    double before = 0;
    for (unsigned other = 0; other < warp; ++other) before += of_warp[other];
    for (unsigned other = warp * 32; other < threadIdx.x; ++other) before += of_thread[other];
    return before;
  }
};

__global__ void draw_columns_kernel(Matrix<float> log_probabilities, Index columns, const double* numbers,
                                    double temperature, Index excluded, Matrix<double> drawn) {
  const Index r = blockIdx.x;
  draw_column(log_probabilities.data + r * log_probabilities.stride, columns, numbers[r], temperature,
              excluded, drawn.data + r * drawn.stride, RowThreads());
}

}  // namespace

void softmax_cross_entropy(cudaStream_t stream, const Tensor& logits, const Indices& targets,
                           float label_smoothing, const Tensor& gradient, const double* scale,
                           const Tensor& sums, double* scratch) {
  if (logits.rows == 0) return;
  with_type(gradient.type, [&]<typename T>(T) {
    const CrossEntropy<T> all{logits,       logits.cols,     moves_packs(logits, gradient),
                              targets.data, label_smoothing, gradient,
                              scale,        scratch};
    launch_kernel(stream, cross_entropy_kernel<T>, static_cast<unsigned>(logits.rows),
                  threads_for(logits.cols, row_threads), all);
  });
  launch_kernel(stream, add_row_losses_kernel, 1, threads_for(logits.rows, row_threads), scratch, logits.rows,
                sums.as<double>());
}

void log_softmax(cudaStream_t stream, const Tensor& logits) {
  if (logits.rows == 0) return;
  launch_kernel(stream, log_softmax_kernel, static_cast<unsigned>(logits.rows),
                threads_for(logits.cols, row_threads), logits);
}

void best_log_softmax(cudaStream_t stream, const Tensor& logits, std::int32_t also, const Tensor& best) {
  if (logits.rows == 0) return;
  launch_kernel(stream, best_log_softmax_kernel, static_cast<unsigned>(logits.rows),
                threads_for(logits.cols, row_threads), logits, also, (best.cols - 3) / 2, best.as<double>(),
                best.stride);
}

void log_add_exp(cudaStream_t stream, const Tensor& from, const Tensor& to) {
  const Matrix<float> source(from), target(to);
  for_each_pack<logits_width>(stream, to.rows, to.cols, moves_packs(from, to),
                              [=] __device__(Index r, Index c, auto n) {
                                auto sums = target.load(r, c, n);
                                const auto more = source.load(r, c, n);
                                for (int k = 0; k < n; ++k) sums[k] = nmt::log_add_exp(sums[k], more[k]);
                                target.store(r, c, sums);
                              });
}

void draw_columns(cudaStream_t stream, const Tensor& log_probabilities, const double* numbers,
                  double temperature, std::int32_t excluded, const Tensor& drawn) {
  if (drawn.rows == 0) return;
  launch_kernel(stream, draw_columns_kernel, static_cast<unsigned>(drawn.rows),
                threads_for(log_probabilities.cols, row_threads), log_probabilities, log_probabilities.cols,
                numbers, temperature, excluded, drawn);
}

}  // namespace nmt::cuda
