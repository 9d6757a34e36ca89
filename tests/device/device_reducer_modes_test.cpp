// Features of a reducer on devices beyond plain steps, compared with the host's reducer: rows, sharded
// updates, micro-batches, learned orders, states and errors.

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/device.hpp"
#include "ddl/hash.hpp"
#include "device/device_fixture.hpp"
#include "support/thrown_error.hpp"

namespace ddl {
namespace {

using DeviceReducer = test::Device;
using test::expect_error;
using test::Stream;
using Values = std::vector<float>;

constexpr std::size_t none = static_cast<std::size_t>(-1);

/// The gradients of a model. `rows_of` has rows of `width`; there may be gaps between gradients.
struct Shape {
  std::vector<std::size_t> counts;
  std::size_t rows_of = none;
  std::size_t width = 0;
  bool scattered = false;
};

/// Values on this rank's device, with a copy on the host.
class DeviceValues {
 public:
  DeviceValues(DeviceCommunicator& device, const Shape& shape) : device_(device) {
    const std::size_t gap = shape.scattered ? 3 : 0;
    std::size_t elements = 0;
    for (const std::size_t count : shape.counts) elements += count + gap;
    memory_ = reinterpret_cast<float*>(device.allocate(elements * sizeof(float)).data);
    host_.resize(elements);
    std::size_t at = 0;
    for (std::size_t g = 0; g < shape.counts.size(); ++g) {
      registered_.push_back(
          {fmt::format("g{}", g), {memory_ + at, shape.counts[g]}, g == shape.rows_of ? shape.width : 0});
      host_parts_.push_back(std::span(host_).subspan(at, shape.counts[g]));
      at += shape.counts[g] + gap;
    }
  }
  [[nodiscard]] const std::vector<Gradient>& gradients() const { return registered_; }
  [[nodiscard]] std::vector<Parameter> parameters() const {
    std::vector<Parameter> result;
    for (const Gradient& gradient : registered_) result.push_back({gradient.name, gradient.values});
    return result;
  }
  [[nodiscard]] std::span<float> operator[](std::size_t g) const { return host_parts_[g]; }
  [[nodiscard]] Values all() const {
    Values result;
    for (const std::span<float> part : host_parts_) result.insert(result.end(), part.begin(), part.end());
    return result;
  }
  void upload(cudaStream_t stream) const {
    EXPECT_EQ(
        cudaMemcpyAsync(memory_, host_.data(), host_.size() * sizeof(float), cudaMemcpyHostToDevice, stream),
        cudaSuccess);
  }
  void download(cudaStream_t stream) {
    EXPECT_EQ(
        cudaMemcpyAsync(host_.data(), memory_, host_.size() * sizeof(float), cudaMemcpyDeviceToHost, stream),
        cudaSuccess);
    device_.wait(stream);
  }

 private:
  DeviceCommunicator& device_;
  float* memory_ = nullptr;
  Values host_;
  std::vector<Gradient> registered_;
  std::vector<std::span<float>> host_parts_;
};

/// Values on the host, with the same layout.
struct HostValues {
  explicit HostValues(const Shape& shape) {
    for (const std::size_t count : shape.counts) memory.emplace_back(count);
    for (std::size_t g = 0; g < memory.size(); ++g) {
      gradients.push_back({fmt::format("g{}", g), memory[g], g == shape.rows_of ? shape.width : 0});
    }
  }
  [[nodiscard]] Values all() const {
    Values result;
    for (const Values& part : memory) result.insert(result.end(), part.begin(), part.end());
    return result;
  }
  std::vector<Values> memory;
  std::vector<Gradient> gradients;
};

/// Runs `body` on each rank, with the rank's device and a stream.
template <typename Body>
void on_devices(int ranks, const Body& body, InProcessOptions options = {}) {
  run_in_process(
      ranks,
      [&](Context& context) {
        int devices = 0;
        ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
        DeviceCommunicator device(context, {.device = context.rank() % devices});
        const Stream stream;
        body(context, device, stream);
        device.release(stream);
      },
      options);
}

InProcessOptions reproducible() {
  InProcessOptions options;
  options.context.reproducible = true;
  return options;
}

/// Integers, so that sums are exact.
float value_of(int rank, std::size_t step, std::size_t gradient, std::size_t element) {
  SplitMix64 random(static_cast<std::uint64_t>(rank) * 1000 + step, gradient * 100'000 + element);
  return static_cast<float>(random.below(2001)) - 1000;
}

/// Writes gradients on a device and on the host; rows that are not in `rows` become zeros.
void backward(const Shape& shape, int rank, std::size_t step, std::span<const std::int32_t> rows,
              DeviceValues& device, HostValues& host, float divisor = 1) {
  for (std::size_t g = 0; g < shape.counts.size(); ++g) {
    for (std::size_t e = 0; e < shape.counts[g]; ++e) {
      const bool is_zero = g == shape.rows_of &&
                           std::ranges::find(rows, static_cast<std::int32_t>(e / shape.width)) == rows.end();
      host.memory[g][e] = device[g][e] = is_zero ? 0.0f : value_of(rank, step, g, e) / divisor;
    }
  }
}

/// Reports gradients from the last to the first, alternately on two streams.
void report(GradientReducer& reducer, const Shape& shape, std::span<const std::int32_t> rows,
            DeviceStream stream) {
  for (std::size_t g = shape.counts.size(); g-- > 0;) {
    if (g != shape.rows_of) {
      reducer.ready(g, stream);
    } else if (rows.empty()) {
      reducer.absent(g);
    } else {
      reducer.ready(g, rows, stream);
    }
  }
}

/// Embeddings on devices would get wrong gradients, or rows would save no bytes.
TEST_F(DeviceReducer, RowsGiveWhatTheHostGives) {
  for (const int ranks : {1, 2, 4}) {
    for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
      for (const bool scattered : {false, true}) {
        const Shape shape = {{20, 300, 30}, 1, 6, scattered};
        on_devices(ranks, [&](Context& context, DeviceCommunicator& device, cudaStream_t stream) {
          DeviceValues on_device(device, shape);
          HostValues on_host(shape);
          const GradientReducerOptions options = {.gradients = kind, .bucket_bytes = 64};
          GradientReducer by_device(device, on_device.gradients(), options);
          GradientReducer by_host(context, on_host.gradients, options);
          SplitMix64 random(3, static_cast<std::uint64_t>(context.rank()));
          for (const std::size_t count : {2U, 1U, 50U, 0U, 3U}) {
            std::vector<std::int32_t> rows;
            for (std::size_t i = 0; i < count; ++i)
              rows.push_back(static_cast<std::int32_t>(random.below(50)));
            backward(shape, context.rank(), count, rows, on_device, on_host);
            const double weight = context.rank() % 3 + 1;
            on_device.upload(stream);
            if (kind == GradientKind::mean) by_device.begin(weight);
            report(by_device, shape, rows, stream);
            kind == GradientKind::mean ? by_device.finish(stream) : by_device.finish(weight, stream);
            const ReducedStep found = by_device.result();
            on_device.download(stream);

            if (kind == GradientKind::mean) by_host.begin(weight);
            report(by_host, shape, rows, nullptr);
            const ReducedStep expected = kind == GradientKind::mean ? by_host.wait() : by_host.wait(weight);
            EXPECT_EQ(found.weight, expected.weight);
            EXPECT_NEAR(found.norm, expected.norm, 1e-6 * expected.norm);
            EXPECT_EQ(found.bytes, expected.bytes);
            EXPECT_EQ(on_device.all(), on_host.all()) << count << " rows";
            EXPECT_TRUE(std::ranges::equal(by_device.touched_rows(1), by_host.touched_rows(1)));
            EXPECT_EQ(by_device.has_gradient(1), count > 0);
            EXPECT_EQ(by_device.has_gradient(0), true);
          }
          const std::vector<std::int32_t> beyond = {1, 50};
          expect_error(ErrorCode::invalid_argument, {"row 50", "('g1') has 50 rows"}, [&] {
            if (kind == GradientKind::mean) by_device.begin(1);
            by_device.ready(1, beyond, stream);
          });
        });
      }
    }
  }
}

/// Rows of earlier micro-batches would be lost.
TEST_F(DeviceReducer, RowsOfMicroBatchesAddUp) {
  const Shape shape = {{20, 300, 30}, 1, 6, false};
  for (const GradientKind kind : {GradientKind::sum, GradientKind::mean}) {
    on_devices(2, [&](Context& context, DeviceCommunicator& device, cudaStream_t stream) {
      DeviceValues on_device(device, shape);
      HostValues on_host(shape);
      const GradientReducerOptions options = {.gradients = kind, .bucket_bytes = 64, .micro_batches = true};
      GradientReducer by_device(device, on_device.gradients(), options);
      GradientReducer by_host(context, on_host.gradients, options);
      for (std::size_t step = 0; step < 3; ++step) {
        std::vector<std::int32_t> rows;
        for (std::size_t part = 0; part < 2; ++part) {
          rows.push_back(static_cast<std::int32_t>(10 * part + step) + context.rank());
          // With sums, backward adds to the gradients of the first micro-batch.
          const std::vector<std::int32_t> now = kind == GradientKind::sum ? rows : std::vector{rows.back()};
          backward(shape, context.rank(), 2 * step + part, now, on_device, on_host);
          on_device.upload(stream);
          const auto end_part = [&](GradientReducer& reducer, DeviceStream on) {
            reducer.begin(static_cast<double>(part) + 1);
            report(reducer, shape, now, on);
          };
          if (part == 0) {
            const auto alone = by_device.no_sync();
            end_part(by_device, stream);
            by_device.finish(stream);
            const auto host_alone = by_host.no_sync();
            end_part(by_host, nullptr);
            by_host.wait();
          } else {
            end_part(by_device, stream);
            by_device.finish(stream);
            end_part(by_host, nullptr);
            by_host.wait();
          }
        }
        EXPECT_EQ(by_device.result().weight, 6);
        on_device.download(stream);
        EXPECT_EQ(on_device.all(), on_host.all()) << "step " << step;
      }
    });
  }
}

/// The optimiser's state would take memory for n copies, or no rank would update some parts of the model.
TEST_F(DeviceReducer, ShardedUpdateGivesWhatTheHostGives) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool scattered : {false, true}) {
      const Shape shape = {{30, 7, 0, 201, 5, 64, 17}, 3, 3, scattered};
      on_devices(ranks, [&](Context& context, DeviceCommunicator& device, cudaStream_t stream) {
        DeviceValues on_device(device, shape);
        DeviceValues parameters(device, shape);
        HostValues on_host(shape);
        HostValues host_parameters(shape);
        const GradientReducerOptions options = {
            .gradients = GradientKind::sum, .bucket_bytes = 160, .sharded_update = true};
        GradientReducer by_device(device, on_device.gradients(), options);
        GradientReducer by_host(context, on_host.gradients, options);
        std::vector<Parameter> on_host_parameters;
        for (Values& values : host_parameters.memory) on_host_parameters.push_back({"", values});
        for (std::size_t step = 0; step < 3; ++step) {
          const std::vector<std::int32_t> rows = {context.rank(), 5};
          backward(shape, context.rank(), step, rows, on_device, on_host);
          on_device.upload(stream);
          report(by_device, shape, rows, stream);
          by_device.finish(2, stream);
          const ReducedStep found = by_device.result();
          on_device.download(stream);
          report(by_host, shape, rows, nullptr);
          const ReducedStep expected = by_host.wait(2);
          EXPECT_NEAR(found.norm, expected.norm, 1e-6 * expected.norm);
          std::size_t own = 0;
          for (const GradientPiece& shard : by_device.shards()) {
            for (std::size_t e = shard.first; e < shard.first + shard.count; ++e) {
              ASSERT_EQ(on_device[shard.gradient][e], on_host.memory[shard.gradient][e])
                  << shard.gradient << " " << e << " on rank " << context.rank();
              parameters[shard.gradient][e] -= on_device[shard.gradient][e];
            }
            own += shard.count;
          }
          EXPECT_LE(own, 324 / static_cast<std::size_t>(ranks) + 30);
          for (const GradientPiece& shard : by_host.shards()) {
            for (std::size_t e = shard.first; e < shard.first + shard.count; ++e) {
              host_parameters.memory[shard.gradient][e] -= on_host.memory[shard.gradient][e];
            }
          }
          parameters.upload(stream);
          by_device.gather(parameters.parameters(), stream);
          parameters.download(stream);
          by_host.gather(on_host_parameters);
          EXPECT_EQ(parameters.all(), host_parameters.all()) << "step " << step;
        }
        auto few = parameters.parameters();
        few.pop_back();
        expect_error(ErrorCode::invalid_argument, {"gather", "6 parameters"},
                     [&] { by_device.gather(few, stream); });
      });
    }
  }
}

/// Reproducible training with rows and shards would give other bits on devices than on hosts.
TEST_F(DeviceReducer, ReproducibleRowsAndShardsHaveTheHostsBits) {
  const Shape shape = {{30, 300, 5, 64}, 1, 6, false};
  for (const std::size_t bucket_bytes : {64U, 100'000U}) {
    for (const bool sharded : {false, true}) {
      on_devices(
          3,
          [&](Context& context, DeviceCommunicator& device, cudaStream_t stream) {
            DeviceValues on_device(device, shape);
            HostValues on_host(shape);
            GradientReducerOptions options = {.gradients = GradientKind::sum,
                                              .bucket_bytes = bucket_bytes,
                                              .sharded_update = sharded,
                                              .leave_sums = true};
            GradientReducer by_device(device, on_device.gradients(), options);
            options.bucket_bytes = 1000;
            GradientReducer by_host(context, on_host.gradients, options);
            for (std::size_t step = 0; step < 2; ++step) {
              const std::vector<std::int32_t> rows = {7, context.rank() * 9};
              backward(shape, context.rank(), step, rows, on_device, on_host, 7);
              on_device.upload(stream);
              report(by_device, shape, rows, stream);
              by_device.finish(3, stream);
              report(by_host, shape, rows, nullptr);
              EXPECT_EQ(by_device.result().norm, by_host.wait(3).norm);
              if (sharded) {
                std::vector<Parameter> sums;
                for (Values& values : on_host.memory) sums.push_back({"", values});
                by_host.gather(sums);
                std::vector<Parameter> on_devices;
                for (const Gradient& g : on_device.gradients()) on_devices.push_back({"", g.values});
                by_device.gather(on_devices, stream);
              }
              on_device.download(stream);
              EXPECT_EQ(on_device.all(), on_host.all()) << "step " << step;
            }
          },
          reproducible());
    }
  }
}

/// Hosts would wait for their devices in each step and so never queue ahead, or a trainer's stream would
/// continue before the gradients are reduced.
TEST_F(DeviceReducer, StreamsWaitAndHostsDoNot) {
  on_devices(2, [](Context& context, DeviceCommunicator& device, cudaStream_t stream) {
    const Shape shape = {{500, 300}, none, 0, false};
    DeviceValues values(device, shape);
    HostValues unused(shape);
    GradientReducer reducer(device, values.gradients(),
                            {.gradients = GradientKind::sum, .bucket_bytes = 1200});
    report(reducer, shape, {}, stream);
    reducer.finish(1, stream);  // learns the order
    device.wait(stream);
    std::atomic<bool> may_go_on = false;
    for (std::size_t g = 0; g < 2; ++g) std::ranges::fill(values[g], 4.0f);
    values.upload(stream);
    context.communicator().barrier();
    ASSERT_EQ(cudaLaunchHostFunc(
                  stream,
                  [](void* flag) {
                    while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
                  },
                  &may_go_on),
              cudaSuccess);
    reducer.begin(2);
    report(reducer, shape, {}, stream);
    reducer.finish(stream);
    context.communicator().barrier();  // all ranks arrive, although no device could make progress
    may_go_on = true;
    values.download(stream);
    EXPECT_EQ(values.all(), Values(800, 2.0f));
    EXPECT_TRUE(reducer.result().finite);
  });
}

/// Ranks would hang or get different bits if they finish gradients in different orders, give the weight only
/// at the end, and some of them pack.
TEST_F(DeviceReducer, CollectivesComeInOneOrderAndAllRanksHaveTheSameBits) {
  std::vector<Values> found(3);
  on_devices(3, [&](Context& context, DeviceCommunicator& device, cudaStream_t stream) {
    const Shape shape = {{30, 7, 0, 201, 5, 64, 17}, none, 0, context.rank() == 1};
    DeviceValues values(device, shape);
    HostValues unused(shape);
    GradientReducer reducer(device, values.gradients(),
                            {.gradients = GradientKind::sum, .bucket_bytes = 160});
    for (std::size_t step = 0; step < 3; ++step) {
      backward(shape, context.rank(), step, {}, values, unused, 7);
      values.upload(stream);
      for (std::size_t i = 0; i < shape.counts.size(); ++i) {
        reducer.ready((i + static_cast<std::size_t>(context.rank()) * step) % shape.counts.size(), stream);
      }
      reducer.finish(1, stream);
      EXPECT_EQ(reducer.result().weight, 3);
    }
    values.download(stream);
    found[static_cast<std::size_t>(context.rank())] = values.all();
  });
  EXPECT_EQ(found[1], found[0]);
  EXPECT_EQ(found[2], found[0]);
}

TEST_F(DeviceReducer, OneHostSendsFloatsWhateverTheWire) {
  on_devices(2, [](Context&, DeviceCommunicator& device, cudaStream_t stream) {
    const Shape shape = {{30, 7, 5}, none, 0, false};
    DeviceValues values(device, shape);
    GradientReducer reducer(device, values.gradients(),
                            {.gradients = GradientKind::sum, .wire = DataType::bf16});
    report(reducer, shape, {}, stream);
    reducer.finish(1, stream);
    EXPECT_EQ(reducer.result().bytes, reducer.bytes());
    EXPECT_TRUE(reducer.residuals().empty());
  });
}

TEST_F(DeviceReducer, AStateHasTheSameBucketsAndTellsThePlans) {
  on_devices(2, [](Context&, DeviceCommunicator& device, cudaStream_t stream) {
    const Shape shape = {{30, 7, 0, 201, 5, 64, 17}, none, 0, false};
    DeviceValues values(device, shape);
    const GradientReducerOptions options = {.gradients = GradientKind::sum, .bucket_bytes = 400};
    GradientReducer first(device, values.gradients(), options);
    for (const std::size_t g : {3U, 0U, 6U, 1U, 5U, 2U, 4U}) first.ready(g, stream);
    first.finish(1, stream);
    EXPECT_NE(first.state().find("\"order\":[3,0,6,1,5,2,4]"), std::string::npos) << first.state();
    EXPECT_EQ(first.state().find("\"plans\":0"), std::string::npos) << first.state();
    GradientReducer second(device, values.gradients(), options);
    second.restore(first.state());
    EXPECT_EQ(second.state(), first.state());
    EXPECT_EQ(second.buckets(), first.buckets());
    report(second, shape, {}, stream);
    second.finish(1, stream);
    EXPECT_TRUE(second.result().finite);
    EXPECT_EQ(second.state(), first.state()) << "what is known is not learned again";

    auto renamed = values.gradients();
    renamed[0].name = "other";
    GradientReducer other(device, renamed, options);
    const std::string state = first.state();
    expect_error(ErrorCode::mismatch, {"other gradients"}, [&] { other.restore(state); });
  });
}

TEST_F(DeviceReducer, OneRanksMistakeEndsTheStepOnAll) {
  on_devices(2, [](Context& context, DeviceCommunicator& device, cudaStream_t stream) {
    const Shape shape = {{30, 7, 5}, none, 0, false};
    DeviceValues values(device, shape);
    GradientReducer reducer(device, values.gradients(), {.gradients = GradientKind::sum});
    const bool errs = context.rank() == 1;
    // A gradient that is not reported, after the other ranks have got the weight.
    reducer.begin(1);
    reducer.ready(2, stream);
    if (!errs) reducer.ready(1, stream);
    reducer.ready(0, stream);
    if (errs) {
      expect_error(ErrorCode::invalid_argument, {"finish: gradient 1 ('g1') was not made ready"},
                   [&] { reducer.finish(stream); });
    } else {
      reducer.finish(stream);
    }
    EXPECT_FALSE(reducer.result().finite);
    // An invalid weight.
    report(reducer, shape, {}, stream);
    if (errs) {
      expect_error(ErrorCode::invalid_argument, {"the weight is -1"}, [&] { reducer.finish(-1, stream); });
    } else {
      reducer.finish(1, stream);
    }
    expect_error(ErrorCode::invalid_argument, {"sum of the weights"}, [&] { reducer.result(); });
    // The next step succeeds.
    for (std::size_t g = 0; g < 3; ++g) std::ranges::fill(values[g], 1.0f);
    values.upload(stream);
    report(reducer, shape, {}, stream);
    reducer.finish(2, stream);
    EXPECT_EQ(reducer.result().weight, 4);
    values.download(stream);
    EXPECT_EQ(values.all(), Values(42, 0.5f));
    reducer.begin(0);
    report(reducer, shape, {}, stream);
    reducer.finish(stream);
    expect_error(ErrorCode::invalid_argument, {"total weight of all 2 ranks is 0"},
                 [&] { reducer.result(); });
  });
}

TEST_F(DeviceReducer, WrongCallsAreRefused) {
  on_devices(1, [](Context& context, DeviceCommunicator& device, cudaStream_t stream) {
    const Shape shape = {{30, 7, 5}, none, 0, false};
    DeviceValues values(device, shape);
    const auto refuses = [](const std::vector<std::string>& parts, const std::function<void()>& call) {
      expect_error(ErrorCode::invalid_argument, parts, call);
    };
    GradientReducer means(device, values.gradients(), {.gradients = GradientKind::mean});
    refuses({"ready() before begin"}, [&] { means.ready(0, stream); });
    refuses({"finish(weight) is for gradient sums"}, [&] { means.finish(1, stream); });
    refuses({"finish() without begin"}, [&] { means.finish(stream); });
    refuses({"result() before finish()"}, [&] { means.result(); });
    means.begin(1);
    refuses({"begin(weight): found a second call in a step"}, [&] { means.begin(1); });
    refuses({"ready(3)", "only 3"}, [&] { means.ready(3, stream); });
    means.ready(0, stream);
    refuses({"ready(0)", "'g0'", "before"}, [&] { means.ready(0, stream); });
    means.ready(1, stream);
    means.ready(2, stream);
    {
      const auto scope = means.no_sync();
      refuses({"no_sync() with gradient means", "micro_batches"}, [&] { means.finish(stream); });
    }
    auto overlapping = values.gradients();
    overlapping[1].values = overlapping[0].values.first(7);
    refuses({"overlap"}, [&] { GradientReducer(device, overlapping, {.gradients = GradientKind::sum}); });
    auto nowhere = values.gradients();
    nowhere[0].values = {static_cast<float*>(nullptr), 30};
    refuses({"'g0' of 30 f32 has no memory"},
            [&] { GradientReducer(device, nowhere, {.gradients = GradientKind::sum}); });
    HostValues on_host(shape);
    GradientReducer host(context, on_host.gradients, {.gradients = GradientKind::sum});
    refuses({"finish()", "call wait()"}, [&] { host.finish(1, stream); });
    refuses({"result()", "call wait()"}, [&] { host.result(); });
  });
}

}  // namespace
}  // namespace ddl
