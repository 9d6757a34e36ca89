#include "ddl/checkpoint/checkpoint_snapshot.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "ddl/error.hpp"

namespace ddl {
namespace {

constexpr std::size_t alignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// This rank's bytes of a piece; empty if it is another's.
std::span<const std::byte> source_of(const CheckpointGroup& group, const std::string& name,
                                     const TensorForm& form, const TensorPiece& piece, int rank) {
  if (piece.rank != rank || piece.count == 0) return {};
  const std::uint64_t size = size_of(form.type);
  for (const TensorSlice& slice : group.slices) {
    if (slice.name != name || slice.first > piece.first) continue;
    if (slice.first + slice.bytes.size() / size < piece.end()) continue;
    return slice.bytes.subspan((piece.first - slice.first) * size, piece.count * size);
  }
  const auto found = std::ranges::find(group.whole, name, &NamedTensor::name);
  return found == group.whole.end() ? std::span<const std::byte>() : std::span<const std::byte>(found->bytes);
}

/// What the Python package shows of a slice.
std::string describe_slice(const std::string& name, const TensorForm& form, const TensorPiece& piece) {
  return nlohmann::json{{"tensor", name}, {"shape", form.shape}, {"first", piece.first}}.dump();
}

}  // namespace

std::vector<CheckpointSnapshot::Record> CheckpointSnapshot::records(const CheckpointLayout& layout,
                                                                    const CheckpointContents& contents,
                                                                    int rank) {
  std::vector<Record> result;
  for (const auto& [name, group] : layout.groups) {
    const CheckpointGroup& mine = contents.groups.at(name);
    for (const auto& [tensor_name, tensor] : group.tensors) {
      const TensorForm& form = tensor.form;
      const auto source = [&](const TensorPiece& piece) {
        return source_of(mine, tensor_name, form, piece, rank);
      };
      if (!layout.sharded) {
        Record& record = result.emplace_back(Record{CheckpointLayout::whole_file(name),
                                                    {tensor_name, form.type, form.shape, {}},
                                                    tensor.pieces,
                                                    {},
                                                    {}});
        for (const TensorPiece& piece : tensor.pieces) record.sources.push_back(source(piece));
        continue;
      }
      for (const TensorPiece& piece : tensor.pieces) {
        if (piece.rank != rank) continue;
        const bool is_whole = piece.count == form.elements();
        result.push_back({layout.rank_file(name, rank),
                          {CheckpointLayout::stored_name(tensor_name, tensor, piece),
                           form.type,
                           is_whole ? form.shape : std::vector{static_cast<std::int64_t>(piece.count)},
                           {}},
                          {piece},
                          {source(piece)},
                          is_whole ? "" : describe_slice(tensor_name, form, piece)});
      }
    }
    for (int owner = 0; owner < static_cast<int>(group.per_rank.size()); ++owner) {
      if (layout.sharded && owner != rank) continue;
      for (const auto& [tensor_name, form] : group.per_rank[static_cast<std::size_t>(owner)]) {
        const auto found = std::ranges::find(mine.per_rank, tensor_name, &NamedTensor::name);
        const bool is_mine = owner == rank && found != mine.per_rank.end();
        result.push_back({layout.rank_file(name, owner),
                          {tensor_name, form.type, form.shape, {}},
                          {{owner, 0, form.elements()}},
                          {is_mine ? std::span<const std::byte>(found->bytes) : std::span<const std::byte>()},
                          {}});
      }
    }
  }
  return result;
}

/// Gives every record of this rank's its bytes: the contents' own, or memory of ours with what is here copied
/// in.
void CheckpointSnapshot::place(std::vector<Record>& records, int rank, bool copy) {
  const auto is_direct = [&](const Record& record) {
    return !copy && record.pieces.size() == 1 && record.pieces[0].rank == rank;
  };
  const auto bytes_of = [](const Record& record) {
    std::size_t bytes = 0;
    for (const TensorPiece& piece : record.pieces) bytes += piece.count * size_of(record.stored.type);
    return bytes;
  };
  std::size_t needed = 0;
  for (const Record& record : records) needed += is_direct(record) ? 0 : aligned(bytes_of(record));
  if (needed > size_) {
    memory_.reset();
    memory_ = std::make_unique_for_overwrite<std::byte[]>(needed);
    size_ = needed;
  }
  std::size_t at = 0;
  for (Record& record : records) {
    if (is_direct(record)) {
      const std::span<const std::byte> source = record.sources[0];
      record.stored.bytes = {const_cast<std::byte*>(source.data()), source.size()};  // only read
      continue;
    }
    record.stored.bytes = {memory_.get() + at, bytes_of(record)};
    at += aligned(record.stored.bytes.size());
    for (std::size_t i = 0; i < record.pieces.size(); ++i) {
      if (record.sources[i].empty()) continue;
      const std::uint64_t element = record.pieces[i].first - record.pieces[0].first;
      std::memcpy(record.stored.bytes.data() + element * size_of(record.stored.type),
                  record.sources[i].data(), record.sources[i].size());
    }
  }
}

/// The other ranks' pieces, one after the other, are reduced to rank 0: everybody but a piece's owner gives
/// zeros.
void CheckpointSnapshot::collect(Context& context, const std::vector<Record>& records) {
  struct Part {
    std::size_t begin, end;
    std::span<const std::byte> source;  // the owner's
    std::byte* target;                  // rank 0's
  };
  std::vector<Part> parts;
  std::size_t total = 0;
  for (const Record& record : records) {
    for (std::size_t i = 0; i < record.pieces.size(); ++i) {
      const TensorPiece& piece = record.pieces[i];
      if (piece.rank == 0 || piece.count == 0) continue;
      const std::size_t size = size_of(record.stored.type);
      std::byte* const target = context.is_root() ? record.stored.bytes.data() + piece.first * size : nullptr;
      parts.push_back({total, total + piece.count * size, record.sources[i], target});
      total += piece.count * size;
    }
  }
  if (total == 0) return;
  if (window_.size() < std::min(total, checkpoint_window))
    window_ = allocate<std::byte>(context, std::min(total, checkpoint_window));
  std::size_t first = 0;  // part
  for (std::size_t begin = 0; begin < total; begin += checkpoint_window) {
    const std::size_t end = std::min(total, begin + checkpoint_window);
    const std::span<std::byte> window = window_.span().first(end - begin);
    std::ranges::fill(window, std::byte{0});
    const auto for_each_part = [&](const auto& visit) {
      for (std::size_t i = first; i < parts.size() && parts[i].begin < end; ++i) {
        const std::size_t from = std::max(begin, parts[i].begin);
        const std::size_t to = std::min(end, parts[i].end);
        visit(parts[i], from - parts[i].begin, window.subspan(from - begin, to - from));
      }
    };
    for_each_part([](const Part& part, std::size_t offset, std::span<std::byte> shared) {
      if (!part.source.empty()) std::memcpy(shared.data(), part.source.data() + offset, shared.size());
    });
    context.communicator().reduce(window.data(), window.data(), window.size(), DataType::u8, ReduceOp::max,
                                  0);
    for_each_part([](const Part& part, std::size_t offset, std::span<std::byte> shared) {
      if (part.target != nullptr) std::memcpy(part.target + offset, shared.data(), shared.size());
    });
    while (first < parts.size() && parts[first].end <= end) ++first;
  }
}

TensorFiles CheckpointSnapshot::take(Context& context, const CheckpointLayout& layout,
                                     const CheckpointContents& contents, bool copy) {
  std::vector<Record> all;
  const bool writes = layout.sharded || context.is_root();
  context.on_all_ranks("copy what is to be saved", [&] {
    all = records(layout, contents, context.rank());
    if (writes) place(all, context.rank(), copy);
  });
  if (!layout.sharded) collect(context, all);
  TensorFiles files;
  for (Record& record : all) {
    if (!writes) break;
    TensorFile& file = files[record.file];
    if (!record.metadata.empty()) file.metadata[record.stored.name] = std::move(record.metadata);
    file.tensors.push_back(std::move(record.stored));
  }
  return files;
}

}  // namespace ddl
