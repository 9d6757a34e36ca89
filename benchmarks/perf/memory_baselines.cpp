// The limits of memory: an all-reduce's reads and writes without a collective.

#include <algorithm>
#include <array>
#include <barrier>
#include <cstring>
#include <vector>

#include "ddl/error.hpp"
#include "perf/baseline.hpp"
#include "perf/element.hpp"

namespace perf {

using ddl::ReduceOp;

class ThreadTeam {
 public:
  explicit ThreadTeam(int threads)
      : inputs(static_cast<std::size_t>(threads)), outputs(inputs.size()), barrier(threads) {}

  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::barrier<> barrier;
};

std::shared_ptr<ThreadTeam> make_thread_team(int threads) { return std::make_shared<ThreadTeam>(threads); }

namespace {

/// Reads and writes each byte once.
class LoopBaseline : public Baseline {
 public:
  [[nodiscard]] bool can_run(const Call&) const override { return true; }
  void run(const Call& call) override {
    const std::size_t words = call.count * size_of(call.type) / sizeof(std::uint64_t);
    const auto* from = reinterpret_cast<const std::uint64_t*>(call.input);
    auto* to = reinterpret_cast<std::uint64_t*>(call.output);
    for (std::size_t i = 0; i < words; ++i) to[i] = from[i] + 1;
  }
};

class ThreadsBaseline : public Baseline {
 public:
  ThreadsBaseline(std::shared_ptr<ThreadTeam> team, int rank)
      : team_(std::move(team)), rank_(static_cast<std::size_t>(rank)) {}

  [[nodiscard]] bool can_run(const Call& call) const override {
    return call.op == ReduceOp::sum && call.type != ddl::DataType::f16 && call.type != ddl::DataType::bf16;
  }

  void run(const Call& call) override {
    team_->inputs[rank_] = call.input;
    team_->outputs[rank_] = call.output;
    team_->barrier.arrive_and_wait();
    with_element(call.type, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      if constexpr (!is_float16<T>) sum_share<T>(call.count);
    });
    team_->barrier.arrive_and_wait();
  }

 private:
  template <typename T>
  void sum_share(std::size_t count) {
    constexpr std::size_t block_bytes = 4096;
    constexpr std::size_t block = block_bytes / sizeof(T);
    const std::size_t ranks = team_->inputs.size();
    const std::size_t end = count * (rank_ + 1) / ranks;
    alignas(64) std::array<T, block> sum;
    for (std::size_t begin = count * rank_ / ranks; begin < end; begin += block) {
      const std::size_t length = std::min(block, end - begin);
      std::memcpy(sum.data(), team_->inputs[0] + begin * sizeof(T), length * sizeof(T));
      for (std::size_t rank = 1; rank < ranks; ++rank) {
        const T* input = reinterpret_cast<const T*>(team_->inputs[rank]) + begin;
        for (std::size_t i = 0; i < length; ++i) sum[i] = static_cast<T>(sum[i] + input[i]);
      }
      for (std::byte* output : team_->outputs) {
        std::memcpy(output + begin * sizeof(T), sum.data(), length * sizeof(T));
      }
    }
  }

  std::shared_ptr<ThreadTeam> team_;
  std::size_t rank_;
};

}  // namespace

std::unique_ptr<Baseline> make_loop_baseline() { return std::make_unique<LoopBaseline>(); }

std::unique_ptr<Baseline> make_threads_baseline(const std::shared_ptr<ThreadTeam>& team, int rank) {
  if (!team) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     "--baseline threads: found ranks that are processes, expected --in-process");
  }
  return std::make_unique<ThreadsBaseline>(team, rank);
}

}  // namespace perf
