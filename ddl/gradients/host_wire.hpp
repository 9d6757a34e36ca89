#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/communicator.hpp"
#include "ddl/gradients/elementwise.hpp"
#include "ddl/gradients/gradient_queue.hpp"
#include "ddl/topology/rank_map.hpp"
#include "ddl/work.hpp"

namespace ddl {

/// What 16 bits could not say of a rank's shard of a bucket, for the next step to send.
struct WireResidual {
  std::vector<float> kept;
  std::vector<float> next;
  std::vector<std::uint16_t> sent;  // the shard, as it travels

  void resize(std::size_t count) {
    kept.resize(count);
    next.resize(count);
    sent.resize(count);
  }
  /// The next one counts, or the step is as if it had not been.
  void settle(bool counts) noexcept {
    if (counts) kept.swap(next);
  }
};

/// Sums within each host in f32, between hosts in 16 bits, with error feedback on the shard (Seide et al.
/// 2014; Karimireddy et al. 2019): what a step's rounding leaves is added to what the next one sends. Shard s
/// of a host belongs to its rank with the index s; hosts of unequal size have as many shards as the smallest
/// has ranks. A bucket's values are a multiple of the shards. Each of the three stages begins once the works
/// of the one before are done; they are on communicators of their own.
class HostWire {
 public:
  /// Collective.
  HostWire(Communicator& all, DataType type)
      : type_(type),
        shards_(smallest_host(all.rank_map())),
        even_(shards_ * static_cast<std::size_t>(all.rank_map().hosts()) ==
              static_cast<std::size_t>(all.size())),
        sums_(all.split(all.rank_map().host_of(all.rank()))),
        results_(all.split(all.rank_map().host_of(all.rank()))),
        index_(static_cast<std::size_t>(sums_.rank())),
        // Ranks without a shard have a communicator of their own, which is not used.
        across_(all.split(static_cast<int>(std::min(index_, shards_)))) {}

  [[nodiscard]] std::size_t shards() const noexcept { return shards_; }
  /// This rank's shard; empty if it has none.
  [[nodiscard]] std::span<float> own(std::span<float> values) const {
    return index_ < shards_ ? shard(values, index_) : std::span<float>();
  }

  std::vector<Work> sum_on_host(std::span<float> values) {
    std::vector<Work> works;
    if (sums_.size() == 1) return works;
    if (even_) {
      const std::span<float> mine = own(values);
      works.push_back(
          sums_.reduce_scatter_async(values.data(), mine.data(), mine.size(), DataType::f32, ReduceOp::sum));
      return works;
    }
    for (std::size_t s = 0; s < shards_; ++s) {
      float* const part = shard(values, s).data();
      works.push_back(sums_.reduce_async(part, part, values.size() / shards_, DataType::f32, ReduceOp::sum,
                                         static_cast<int>(s)));
    }
    return works;
  }

  std::optional<Work> sum_over_hosts(std::span<float> values, WireResidual& residual) {
    if (index_ >= shards_) return {};
    std::vector<std::uint16_t>& sent = residual.sent;
    elementwise::encode(type_, own(values), residual.kept, sent, residual.next);
    return across_.all_reduce_async(sent.data(), sent.data(), sent.size(), type_, ReduceOp::sum);
  }

  std::vector<Work> share_on_host(std::span<float> values, const WireResidual& residual) {
    std::vector<Work> works;
    const std::span<float> mine = own(values);
    if (!mine.empty()) elementwise::decode(type_, residual.sent, mine);
    if (results_.size() == 1) return works;
    if (even_) {
      works.push_back(results_.all_gather_async(mine.data(), values.data(), mine.size(), DataType::f32));
      return works;
    }
    for (std::size_t s = 0; s < shards_; ++s) {
      float* const part = shard(values, s).data();
      works.push_back(
          results_.broadcast_async(part, part, values.size() / shards_, DataType::f32, static_cast<int>(s)));
    }
    return works;
  }

  /// For buckets of `count` values.
  [[nodiscard]] std::string plans(std::size_t count) const {
    using topology::Collective;
    const std::size_t part = count / shards_;
    const std::string inside = even_ ? plan_text(sums_, Collective::reduce_scatter, count, DataType::f32)
                                     : plan_text(sums_, Collective::reduce, part, DataType::f32);
    return inside + " " + (index_ < shards_ ? plan_text(across_, Collective::all_reduce, part, type_) : "");
  }

 private:
  static std::size_t smallest_host(const topology::RankMap& map) {
    std::size_t smallest = map.ranks_of(0).size();
    for (int host = 1; host < map.hosts(); ++host) smallest = std::min(smallest, map.ranks_of(host).size());
    return smallest;
  }
  [[nodiscard]] std::span<float> shard(std::span<float> values, std::size_t index) const {
    return values.subspan(index * (values.size() / shards_), values.size() / shards_);
  }

  DataType type_;
  std::size_t shards_;
  bool even_;  // all hosts have as many ranks
  Communicator sums_;
  Communicator results_;
  std::size_t index_;
  Communicator across_;
};

}  // namespace ddl
