// The cuts of an all-reduce by dimension. Otherwise elements would be left out or summed twice.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ddl/device/dimension_calls.hpp"

namespace ddl::device {
namespace {

using Values = std::vector<std::int64_t>;

/// The values of the ranks of `hosts` hosts after the collectives of each chunk, in order.
std::vector<Values> reduced(const std::vector<Values>& inputs, std::size_t hosts, std::size_t inner,
                            const ScatterGather& cut) {
  const std::size_t count = inputs[0].size();
  std::vector<Values> outputs(inputs.size(), Values(count, -1));
  const auto rank = [&](std::size_t host, std::size_t local) { return host * inner + local; };
  for (const ScatterGatherChunk& chunk : cut.chunks) {
    for (std::size_t local = 0; local < inner; ++local) {
      for (std::size_t i = 0; i < chunk.part; ++i) {
        const std::size_t at = chunk.first + local * chunk.part + i;
        std::int64_t sum = 0;
        for (std::size_t host = 0; host < hosts; ++host) {
          for (std::size_t peer = 0; peer < inner; ++peer) sum += inputs[rank(host, peer)][at];
        }
        for (Values& output : outputs) {
          EXPECT_EQ(output[at], -1) << "twice";
          output[at] = sum;
        }
      }
    }
  }
  for (std::size_t at = count - cut.rest; at < count; ++at) {
    std::int64_t sum = 0;
    for (const Values& input : inputs) sum += input[at];
    for (Values& output : outputs) {
      EXPECT_EQ(output[at], -1) << "twice";
      output[at] = sum;
    }
  }
  return outputs;
}

TEST(ScatterGather, EveryElementIsReducedOnce) {
  constexpr std::size_t hosts = 2;
  for (const std::size_t inner : {1U, 2U, 3U, 8U}) {
    for (const std::size_t count : {0U, 1U, 7U, 8U, 9U, 100U, 1009U}) {
      for (const std::size_t chunks : {1U, 2U, 5U, 8U}) {
        std::vector<Values> inputs(hosts * inner, Values(count));
        Values sums(count);
        for (std::size_t r = 0; r < inputs.size(); ++r) {
          for (std::size_t i = 0; i < count; ++i) {
            sums[i] += inputs[r][i] = static_cast<std::int64_t>(r * 1000 + i);
          }
        }
        const ScatterGather cut = scatter_gather(count, inner, chunks);
        EXPECT_LT(cut.rest, inner);
        EXPECT_LE(cut.chunks.size(), chunks);
        for (const Values& output : reduced(inputs, hosts, inner, cut)) EXPECT_EQ(output, sums);
      }
    }
  }
}

TEST(ScatterGather, ChunksAreOfAlikeSize) {
  const ScatterGather cut = scatter_gather(103, 4, 3);
  EXPECT_EQ(cut.chunks, (std::vector<ScatterGatherChunk>{{0, 9}, {36, 8}, {68, 8}}));
  EXPECT_EQ(cut.rest, 3U);
}

}  // namespace
}  // namespace ddl::device
