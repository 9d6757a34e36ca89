#include <algorithm>
#include <utility>

#include "ddl/gradients/bucket_set.hpp"

// Which elements a rank updates, and how the others get them.

namespace ddl {

/// Elements of each rank's shard; what is left over, of a gradient with rows, is everybody's.
std::size_t BucketSet::shard_count(const BucketLayout& layout) const {
  return layout.count() / static_cast<std::size_t>(context_.size());
}

std::vector<GradientShard> BucketSet::shards() const {
  std::vector<GradientShard> shards;
  const auto add = [&](const BucketLayout& layout, std::size_t first, std::size_t end) {
    std::size_t at = 0;
    for (const GradientPiece& piece : layout.pieces) {
      const std::size_t from = std::max(first, at);
      const std::size_t to = std::min(end, at + piece.count);
      if (from < to) shards.push_back({piece.gradient, piece.first + from - at, to - from});
      at += piece.count;
    }
  };
  const auto rank = static_cast<std::size_t>(context_.rank());
  for (const Bucket& bucket : buckets_) {
    const std::size_t count = shard_count(bucket.layout);
    add(bucket.layout, rank * count, (rank + 1) * count);
    add(bucket.layout, count * static_cast<std::size_t>(context_.size()), bucket.layout.count());
  }
  return shards;
}

Work BucketSet::gather_in_place(std::span<float> values) const {
  const std::size_t count = values.size() / static_cast<std::size_t>(context_.size());
  const float* const own = values.data() + static_cast<std::size_t>(context_.rank()) * count;
  return context_.communicator().all_gather_async(own, values.data(), count, DataType::f32);
}

void BucketSet::gather(std::span<const Parameter> parameters) {
  std::vector<std::vector<std::span<float>>> pieces_of(size());
  std::vector<std::span<float>> gathered(size());
  std::vector<Work> works(size());
  for (std::size_t i = 0; i < size(); ++i) {
    Bucket& bucket = buckets_[i];
    for (const GradientPiece& piece : bucket.layout.pieces) {
      pieces_of[i].push_back(parameters[piece.gradient].values.subspan(piece.first, piece.count));
    }
    if (bucket.layout.padding == 0) gathered[i] = one_run(pieces_of[i]);
    if (gathered[i].empty()) {
      SharedBuffer<float>& memory = bucket.packed.size() > 0 ? bucket.packed : bucket.parameters;
      if (memory.size() == 0) memory = allocate<float>(context_, bucket.layout.count());
      gathered[i] = memory.span();
      float* to = memory.data();
      for (const std::span<float> piece : pieces_of[i]) to = std::ranges::copy(piece, to).out;
    }
    works[i] = gather_in_place(gathered[i]);
  }
  for (std::size_t i = 0; i < size(); ++i) {
    works[i].wait();
    if (gathered[i].data() == pieces_of[i].front().data()) continue;
    const float* from = gathered[i].data();
    for (const std::span<float> piece : pieces_of[i]) {
      std::copy_n(from, piece.size(), piece.data());
      from += piece.size();
    }
  }
}

}  // namespace ddl
