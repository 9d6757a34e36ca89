// Gradients of ranks that are threads, on all devices: kernels, events and streams. See
// device_reducer_modes_test for other features than plain steps.

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "device/device_fixture.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using DeviceGradients = test::Device;
using test::error_of;
using test::Stream;

constexpr std::size_t sizes[] = {1'000'003, 1, 0, 4096, 77'777, 300'000};
constexpr std::size_t gradients = std::size(sizes);

enum class Memory { mapped, plain, scattered };

/// Page-locked memory, so that copies from and to it are asynchronous.
class Host {
 public:
  explicit Host(std::size_t count) {
    void* memory = nullptr;
    EXPECT_EQ(cudaHostAlloc(&memory, count * sizeof(float), cudaHostAllocDefault), cudaSuccess);
    values_ = {static_cast<float*>(memory), count};
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() { cudaFreeHost(values_.data()); }
  [[nodiscard]] std::span<float> operator[](std::size_t gradient) const {
    std::size_t at = 0;
    for (std::size_t g = 0; g < gradient; ++g) at += sizes[g];
    return values_.subspan(at, sizes[gradient]);
  }
  [[nodiscard]] std::span<float> all() const { return values_; }

 private:
  std::span<float> values_;
};

class Rank {
 public:
  Rank(Context& context, Memory memory, GradientReducerOptions options)
      : device_(context), is_plain_(memory != Memory::mapped), host_(total()) {
    const std::size_t gap = memory == Memory::scattered ? 5 : 0;
    const std::size_t bytes = (total() + gap * gradients) * sizeof(float);
    if (is_plain_) {
      void* allocated = nullptr;
      EXPECT_EQ(cudaMalloc(&allocated, bytes), cudaSuccess);
      values_ = static_cast<float*>(allocated);
    } else {
      values_ = reinterpret_cast<float*>(device_.allocate(bytes).data);
    }
    std::size_t at = 0;
    for (std::size_t g = 0; g < gradients; ++g) {
      registered_.push_back({fmt::format("g{}", g), {values_ + at, sizes[g]}});
      at += sizes[g] + gap;
    }
    reducer_.emplace(device_, registered_, options);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    reducer_.reset();
    device_.release(stream_);
    if (is_plain_) cudaFree(values_);
  }

  /// Runs a step in which backward writes `value(gradient, element)`; copies the results back by work that is
  /// queued after `finish`.
  template <typename Value>
  void step(double weight, const Value& value, bool early_weight = true, std::size_t absent = gradients) {
    for (std::size_t g = 0; g < gradients; ++g) {
      for (std::size_t e = 0; e < sizes[g]; ++e) host_[g][e] = value(g, e);
    }
    if (early_weight) reducer_->begin(weight);
    for (std::size_t g = gradients; g-- > 0;) {
      EXPECT_EQ(cudaMemcpyAsync(registered_[g].values.data(), host_[g].data(), sizes[g] * sizeof(float),
                                cudaMemcpyHostToDevice, stream_),
                cudaSuccess);
      g == absent ? reducer_->absent(g) : reducer_->ready(g, stream_);
    }
    early_weight ? reducer_->finish(stream_) : reducer_->finish(weight, stream_);
    for (std::size_t g = 0; g < gradients; ++g) {
      EXPECT_EQ(cudaMemcpyAsync(host_[g].data(), registered_[g].values.data(), sizes[g] * sizeof(float),
                                cudaMemcpyDeviceToHost, stream_),
                cudaSuccess);
    }
    device_.wait(stream_);
  }

  [[nodiscard]] GradientReducer& reducer() { return *reducer_; }
  [[nodiscard]] const Host& found() const { return host_; }

 private:
  static std::size_t total() {
    std::size_t sum = 0;
    for (const std::size_t size : sizes) sum += size;
    return sum;
  }

  DeviceCommunicator device_;
  bool is_plain_;
  Stream stream_;
  Host host_;
  float* values_ = nullptr;
  std::vector<Gradient> registered_;
  std::optional<GradientReducer> reducer_;
};

/// Integers, so that sums are exact, and means too if the sum is a multiple of the weight.
float mean_of(int rank, std::size_t gradient, std::size_t element) {
  return static_cast<float>((element + gradient * 7 + static_cast<std::size_t>(rank) * 3) % 32);
}

double weight_of(int rank) { return rank == 1 ? 0 : 1 << rank; }

TEST_F(DeviceGradients, BecomeWeightedMeans) {
  for (const int ranks : {1, 2, 4}) {
    for (const Memory memory : {Memory::mapped, Memory::plain, Memory::scattered}) {
      for (const GradientKind kind : {GradientKind::mean, GradientKind::sum}) {
        for (const bool leave_sums : {false, true}) {
          run_in_process(ranks, [&](Context& context) {
            const bool early = kind == GradientKind::mean || leave_sums;
            Rank rank(context, memory,
                      {.gradients = kind, .bucket_bytes = 500'000, .leave_sums = leave_sums});
            double total = 0;
            for (int r = 0; r < ranks; ++r) total += weight_of(r);
            const double own = weight_of(context.rank());
            for (int step = 0; step < 3; ++step) {
              rank.step(
                  own,
                  [&](std::size_t g, std::size_t e) {
                    const float mean = mean_of(context.rank(), g, e);
                    if (kind == GradientKind::sum) return static_cast<float>(mean * own);
                    return own == 0 ? std::numeric_limits<float>::quiet_NaN() : mean;
                  },
                  early);
              const ReducedStep result = rank.reducer().result();
              EXPECT_EQ(result.weight, total);
              EXPECT_TRUE(result.finite);
              double squares = 0;
              std::size_t wrong = 0;
              for (std::size_t g = 0; g < gradients; ++g) {
                for (std::size_t e = 0; e < sizes[g]; ++e) {
                  double sum = 0;
                  for (int r = 0; r < ranks; ++r) sum += weight_of(r) * mean_of(r, g, e);
                  squares += sum * sum;
                  const double expected = leave_sums ? sum : sum / total;
                  wrong += std::abs(rank.found()[g][e] - expected) <= 1e-6 * expected ? 0 : 1;
                }
              }
              EXPECT_EQ(wrong, 0U) << "rank " << context.rank() << " of " << ranks << ", step " << step;
              EXPECT_NEAR(result.norm, std::sqrt(squares) / total, 1e-9 * result.norm);
            }
          });
        }
      }
    }
  }
}

TEST_F(DeviceGradients, AbsentOnesAreZerosAndMicroBatchesAddUp) {
  run_in_process(2, [&](Context& context) {
    Rank rank(context, Memory::scattered, {.gradients = GradientKind::mean, .micro_batches = true});
    {
      const auto scope = rank.reducer().no_sync();
      rank.step(1, [](std::size_t, std::size_t) { return 1.0f; });
    }
    rank.step(
        3, [](std::size_t, std::size_t) { return 5.0f; }, true, context.rank() == 1 ? 4 : gradients);
    EXPECT_EQ(rank.reducer().result().weight, 8);
    for (const float value : rank.found()[3]) ASSERT_EQ(value, 4.0f);
    for (const float value : rank.found()[4]) ASSERT_EQ(value, (1 + 15 + 1) / 8.0f);
  });
}

TEST_F(DeviceGradients, WhatIsNotFiniteIsSeenByAll) {
  run_in_process(2, [&](Context& context) {
    Rank rank(context, Memory::mapped, {.gradients = GradientKind::sum});
    rank.step(1, [&](std::size_t g, std::size_t e) {
      const bool is_wrong = context.rank() == 1 && g == 5 && e == 299'999;
      return is_wrong ? std::numeric_limits<float>::infinity() : 1.0f;
    });
    EXPECT_FALSE(rank.reducer().result().finite);
  });
}

// In mixed precision, sums of 16-bit gradients would overflow or lose their last bits.
TEST_F(DeviceGradients, SixteenBitsAreSummedIn32AndRoundedOnce) {
  for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
    run_in_process(3, [&](Context& context) {
      constexpr std::size_t count = 100'001;
      Stream stream;
      void* host = nullptr;  // page-locked, so that copies from and to it are queued
      ASSERT_EQ(cudaHostAlloc(&host, 8 * count, cudaHostAllocDefault), cudaSuccess);
      auto* const half = static_cast<float16*>(host);
      auto* const brain = reinterpret_cast<bfloat16*>(half + count);
      auto* const full = reinterpret_cast<float*>(brain + count);
      DeviceCommunicator device(context);
      std::byte* const memory = device.allocate(8 * count).data;
      const std::vector<Gradient> registered = {
          {"half", Elements(reinterpret_cast<float16*>(memory), count)},
          {"brain", Elements(reinterpret_cast<bfloat16*>(memory + 2 * count), count)},
          {"full", Elements(reinterpret_cast<float*>(memory + 4 * count), count)}};
      GradientReducer reducer(device, registered, {.gradients = kind, .bucket_bytes = 150'000});
      const auto copy = [&](bool back) {
        EXPECT_EQ(
            cudaMemcpyAsync(back ? host : memory, back ? memory : host, 8 * count, cudaMemcpyDefault, stream),
            cudaSuccess);
      };
      const auto step = [&](float scale) {
        if (kind == GradientKind::mean) reducer.begin(2);
        for (std::size_t e = 0; e < count; ++e) {
          const float value = scale * static_cast<float>(e % 64 + static_cast<std::size_t>(context.rank()));
          half[e] = float16(value);
          brain[e] = bfloat16(value);
          full[e] = value;
        }
        copy(false);
        for (const std::size_t g : {2U, 1U, 0U}) reducer.ready(g, stream);
        kind == GradientKind::mean ? reducer.finish(stream) : reducer.finish(2, stream);
        copy(true);
        device.wait(stream);
        return reducer.result();
      };
      const float means = kind == GradientKind::mean ? 1 : 0.5f;  // each rank's sums are over 2 items
      for (const float scale : {1.0f, 512.0f}) {  // sums of up to 98,304, beyond the range of f16
        EXPECT_TRUE(step(scale).finite);
        for (std::size_t e = 0; e < count; ++e) {
          const float expected = scale * means * static_cast<float>(e % 64 + 1);
          ASSERT_EQ(static_cast<float>(half[e]), expected) << e;
          ASSERT_EQ(static_cast<float>(brain[e]), expected) << e;
          ASSERT_EQ(full[e], expected) << e;
        }
      }
      EXPECT_FALSE(step(1024).finite);  // 66,560 is infinite in f16
      device.release(stream);
      cudaFreeHost(host);
    });
  }
}

// A model that is spread over devices could not be replicated.
TEST_F(DeviceGradients, AGroupReducesAmongItsRanks) {
  run_in_process(4, [&](Context& context) {
    Context group = context.split(context.rank() % 2);
    Rank rank(group, Memory::mapped, {.gradients = GradientKind::sum});
    rank.step(1, [&](std::size_t, std::size_t) { return static_cast<float>(context.rank()); });
    EXPECT_EQ(rank.reducer().result().weight, 2);
    EXPECT_EQ(rank.found()[3][7], context.rank() % 2 == 0 ? 1.0f : 2.0f);
  });
}

TEST_F(DeviceGradients, OtherGradientsOnAnotherRankAreNamed) {
  run_in_process(2, [&](Context& context) {
    DeviceCommunicator device(context);
    float* const values = reinterpret_cast<float*>(device.allocate(4000).data);
    const std::size_t count = context.rank() == 0 ? 1000 : 999;
    const Error error = error_of([&] {
      GradientReducer(device, {{"weights", {values, count}}}, {.gradients = GradientKind::sum});
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(error.what()).find("'weights' of 1000 f32"), std::string::npos) << error.what();
  });
}

/// Values and norm would depend on the buckets, or differ from those of the host's reducer.
TEST_F(DeviceGradients, ReproducibleWhateverTheBuckets) {
  InProcessOptions options;
  options.context.reproducible = true;
  const auto value = [](int rank, std::size_t g, std::size_t e) {
    return std::sin(static_cast<float>(e * 3 + g) + static_cast<float>(rank) / 7) *
           static_cast<float>(1 + e % 100);
  };
  std::vector<float> expected;
  double expected_norm = 0;
  run_in_process(
      2,
      [&](Context& context) {
        std::vector<std::vector<float>> values;
        std::vector<Gradient> registered;
        for (std::size_t g = 0; g < gradients; ++g) {
          auto& own = values.emplace_back(sizes[g]);
          for (std::size_t e = 0; e < sizes[g]; ++e) own[e] = value(context.rank(), g, e);
        }
        for (std::size_t g = 0; g < gradients; ++g) registered.push_back({fmt::format("g{}", g), values[g]});
        GradientReducer reducer(context, registered, {.gradients = GradientKind::sum, .leave_sums = true});
        for (std::size_t g = gradients; g-- > 0;) reducer.ready(g);
        const double norm = reducer.wait(3).norm;
        if (context.rank() != 0) return;
        expected_norm = norm;
        for (const auto& own : values) expected.insert(expected.end(), own.begin(), own.end());
      },
      options);
  for (const std::size_t bucket_bytes : {100'000, 1'000'000, 100'000'000}) {
    for (const Memory memory : {Memory::mapped, Memory::scattered}) {
      run_in_process(
          2,
          [&](Context& context) {
            Rank rank(context, memory,
                      {.gradients = GradientKind::sum, .bucket_bytes = bucket_bytes, .leave_sums = true});
            rank.step(
                3, [&](std::size_t g, std::size_t e) { return value(context.rank(), g, e); }, false);
            EXPECT_EQ(rank.reducer().result().norm, expected_norm) << "buckets of " << bucket_bytes;
            const std::span<float> found = rank.found().all();
            EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end()))
                << "buckets of " << bucket_bytes;
          },
          options);
    }
  }
}

}  // namespace
}  // namespace ddl
