#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/device.hpp"
#include "ddl/gradient_reducer.hpp"
#include "ddl/hash.hpp"
#include "device/device_fixture.hpp"

namespace ddl::test {

/// 16-bit gradients on this rank's device, with a copy on the host: adjacent, or 2 bytes apart. The last one
/// is in rows of 8.
template <typename Narrow>
class NarrowGradients {
 public:
  static constexpr std::size_t counts[] = {130, 257, 64, 30'000, 5, 96};
  static constexpr std::size_t row_width = 8;

  NarrowGradients(DeviceCommunicator& device, bool adjacent)
      : device_(device), host(std::accumulate(std::begin(counts), std::end(counts), std::size(counts))) {
    memory_ = reinterpret_cast<Narrow*>(device.allocate(host.size() * sizeof(Narrow)).data);
    std::size_t at = 0;
    for (const std::size_t count : counts) {
      const std::size_t g = values.size();
      values.push_back(std::span(host).subspan(at, count));
      gradients.push_back(
          {fmt::format("g{}", g), {memory_ + at, count}, g + 1 == std::size(counts) ? row_width : 0});
      at += count + (adjacent ? 0 : 1);
    }
  }

  /// Ends a step in which rank r's gradients, means or sums over r + 1 items, are `mean(g, e)` an item.
  template <typename Mean>
  ReducedStep step(GradientReducer& reducer, GradientKind kind, DeviceStream stream, const Mean& mean) {
    const double weight = device_.rank() + 1;
    const double factor = kind == GradientKind::mean ? 1 : weight;
    for (std::size_t g = 0; g < values.size(); ++g) {
      for (std::size_t e = 0; e < values[g].size(); ++e)
        values[g][e] = Narrow(static_cast<float>(mean(g, e) * factor));
    }
    copy(memory_, host.data(), cudaMemcpyHostToDevice, stream);
    if (kind == GradientKind::mean) reducer.begin(weight);
    for (std::size_t g = values.size(); g-- > 0;) reducer.ready(g, stream);
    kind == GradientKind::mean ? reducer.finish(stream) : reducer.finish(weight, stream);
    copy(host.data(), memory_, cudaMemcpyDeviceToHost, stream);
    device_.wait(stream);
    return reducer.result();
  }

 private:
  void copy(Narrow* to, const Narrow* from, cudaMemcpyKind kind, DeviceStream stream) const {
    EXPECT_EQ(cudaMemcpyAsync(to, from, host.size() * sizeof(Narrow), kind, stream), cudaSuccess);
  }

  DeviceCommunicator& device_;
  Narrow* memory_ = nullptr;

 public:
  std::vector<Narrow> host;
  std::vector<std::span<Narrow>> values;  ///< On the host.
  std::vector<Gradient> gradients;        ///< On the device.
};

/// Calls f with a value of each 16-bit type.
template <typename F>
void with_each_type(const F& f) {
  f(float16());
  f(bfloat16());
}

/// Integers of which sums over a few ranks are exact in 16 bits.
inline double small_integer(int rank, std::size_t g, std::size_t e) {
  return static_cast<double>(SplitMix64(static_cast<std::uint64_t>(rank), g * 100'000 + e).below(41)) - 20;
}

/// Three steps with narrow sums of small integers, which must be exact, and bring half the bytes of f32.
/// Other options than `narrow_sums` and `leave_sums` are those that are given.
template <typename Narrow>
void expect_exact_sums(Context& context, DeviceCommunicator& device, bool adjacent,
                       GradientReducerOptions options) {
  using Block = NarrowGradients<Narrow>;
  const Stream stream;
  Block block(device, adjacent);
  options.leave_sums = true;
  options.narrow_sums = true;
  GradientReducer reducer(device, block.gradients, options);
  for (int step = 0; step < 3; ++step) {
    const ReducedStep found =
        block.step(reducer, options.gradients, stream,
                   [&](std::size_t g, std::size_t e) { return small_integer(context.rank(), g, e); });
    double squares = 0;
    std::vector<std::vector<float>> sums;
    for (std::size_t g = 0; g < std::size(Block::counts); ++g) {
      std::vector<float>& of_gradient = sums.emplace_back();
      for (std::size_t e = 0; e < Block::counts[g]; ++e) {
        double sum = 0;
        for (int rank = 0; rank < context.size(); ++rank) sum += (rank + 1) * small_integer(rank, g, e);
        of_gradient.push_back(static_cast<float>(sum));
        squares += sum * sum;
      }
    }
    for (const GradientPiece& piece : reducer.shards()) {
      for (std::size_t e = piece.first; e < piece.first + piece.count; ++e)
        ASSERT_EQ(static_cast<float>(block.values[piece.gradient][e]), sums[piece.gradient][e])
            << piece.gradient << " " << e;
    }
    for (std::size_t g = 0; !options.sharded_update && g < sums.size(); ++g) {
      for (std::size_t e = 0; e < sums[g].size(); ++e)
        ASSERT_EQ(static_cast<float>(block.values[g][e]), sums[g][e]) << g << " " << e;
    }
    EXPECT_TRUE(found.finite);
    EXPECT_NEAR(found.norm * found.weight, std::sqrt(squares), 1e-6 * std::sqrt(squares));
    const std::size_t bytes = 2 * std::accumulate(std::begin(Block::counts), std::end(Block::counts), 0UL);
    EXPECT_EQ(found.bytes, bytes + 96 / Block::row_width);  // the map of touched rows
    EXPECT_LE(reducer.packed_bytes(),
              adjacent && !options.sharded_update ? 0 : bytes + 128 * reducer.buckets());
  }
  device.release(stream);
}

}  // namespace ddl::test
