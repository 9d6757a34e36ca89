#include "ddl/checkpoint/checkpoint_snapshot.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace ddl {
namespace {

constexpr std::size_t alignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// The bytes of a piece; empty if another rank provides them.
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

/// Metadata of a slice, which the safetensors package for Python shows.
std::string describe_slice(const std::string& name, const TensorForm& form, const TensorPiece& piece) {
  return nlohmann::json{{"tensor", name}, {"shape", form.shape}, {"first", piece.first}}.dump();
}

/// A tensor in a file, and the sources of its bytes.
struct Record {
  std::string file;
  NamedTensor stored;
  std::vector<TensorPiece> pieces;
  std::vector<std::span<const std::byte>> sources;  // by piece; empty for pieces of other ranks
  std::string metadata;

  [[nodiscard]] std::size_t bytes() const {
    std::size_t elements = 0;
    for (const TensorPiece& piece : pieces) elements += piece.count;
    return elements * size_of(stored.type);
  }
};

std::vector<Record> records_of(const CheckpointLayout& layout, const CheckpointContents& contents, int rank) {
  std::vector<Record> result;
  const auto add = [&](std::string file, std::string name, const TensorForm& form,
                       std::vector<TensorPiece> pieces) {
    result.push_back(
        {std::move(file), {std::move(name), form.type, form.shape, {}}, std::move(pieces), {}, {}});
  };
  for (const auto& [name, group] : layout.groups) {
    const CheckpointGroup& mine = contents.groups.at(name);
    for (const auto& [tensor_name, tensor] : group.tensors) {
      const TensorForm& form = tensor.form;
      const auto source = [&](const TensorPiece& piece) {
        return source_of(mine, tensor_name, form, piece, rank);
      };
      if (!layout.sharded) {
        add(CheckpointLayout::whole_file(name), tensor_name, form, tensor.pieces);
        for (const TensorPiece& piece : tensor.pieces) result.back().sources.push_back(source(piece));
        continue;
      }
      for (const TensorPiece& piece : tensor.pieces) {
        if (piece.rank != rank) continue;
        const auto [stored_name, stored_form, is_whole] = CheckpointLayout::stored(tensor_name, form, piece);
        add(layout.rank_file(name, rank), stored_name, stored_form, {piece});
        result.back().sources.push_back(source(piece));
        if (!is_whole) result.back().metadata = describe_slice(tensor_name, form, piece);
      }
    }
    for (int owner = 0; owner < static_cast<int>(group.per_rank.size()); ++owner) {
      if (layout.sharded && owner != rank) continue;
      for (const auto& [tensor_name, form] : group.per_rank[as_index(owner)]) {
        add(layout.rank_file(name, owner), tensor_name, form, {{owner, 0, form.elements()}});
        const auto found = std::ranges::find(mine.per_rank, tensor_name, &NamedTensor::name);
        const bool is_mine = owner == rank && found != mine.per_rank.end();
        result.back().sources.push_back(is_mine ? found->bytes : std::span<std::byte>());
      }
    }
  }
  return result;
}

/// Sets the bytes of every record: to the contents' own memory or, if `copy` or if other ranks provide some
/// of them, to memory from `memory_of` into which this rank's pieces are copied.
template <typename MemoryOf>
void place(std::vector<Record>& records, int rank, bool copy, const MemoryOf& memory_of) {
  const auto is_direct = [&](const Record& record) {
    return !copy && record.pieces.size() == 1 && record.pieces[0].rank == rank;
  };
  std::size_t needed = 0;
  for (const Record& record : records) needed += is_direct(record) ? 0 : aligned(record.bytes());
  std::byte* at = memory_of(needed);
  for (Record& record : records) {
    if (is_direct(record)) {
      const std::span<const std::byte> source = record.sources[0];
      record.stored.bytes = {const_cast<std::byte*>(source.data()), source.size()};  // never written
      continue;
    }
    record.stored.bytes = {at, record.bytes()};
    at += aligned(record.stored.bytes.size());
    for (std::size_t i = 0; i < record.pieces.size(); ++i) {
      if (record.sources[i].empty()) continue;
      const std::uint64_t element = record.pieces[i].first - record.pieces[0].first;
      std::memcpy(record.stored.bytes.data() + element * size_of(record.stored.type),
                  record.sources[i].data(), record.sources[i].size());
    }
  }
}

/// Sends the other ranks' pieces to rank 0 by reductions of windows of their concatenation, in which all
/// ranks except a piece's owner contribute zeros.
void collect(const Context& context, const std::vector<Record>& records, SharedBuffer<std::byte>& memory) {
  struct Part {
    std::size_t begin, end;
    std::span<const std::byte> source;  // empty except on the owner
    std::byte* target;                  // null except on rank 0
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
  if (memory.size() < std::min(total, checkpoint_window))
    memory = allocate<std::byte>(context, std::min(total, checkpoint_window));
  std::size_t first = 0;  // the first part that is not complete
  for (std::size_t begin = 0; begin < total; begin += checkpoint_window) {
    const std::size_t end = std::min(total, begin + checkpoint_window);
    const std::span<std::byte> window = memory.span().first(end - begin);
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

}  // namespace

/// Does not keep the contents of the memory if it grows.
std::byte* CheckpointSnapshot::memory_of(std::size_t bytes) {
  if (bytes > size_) {
    memory_.reset();
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    size_ = bytes;
  }
  return memory_.get();
}

TensorFiles CheckpointSnapshot::take(const Context& context, const CheckpointLayout& layout,
                                     const CheckpointContents& contents, bool copy) {
  std::vector<Record> records;
  const bool writes = layout.sharded || context.is_root();
  context.on_all_ranks("copy what is to be saved", [&] {
    records = records_of(layout, contents, context.rank());
    const auto memory = [this](std::size_t bytes) { return memory_of(bytes); };
    if (writes) place(records, context.rank(), copy, memory);
  });
  if (!layout.sharded) collect(context, records, window_);
  TensorFiles files;
  if (!writes) return files;
  for (Record& record : records) {
    TensorFile& file = files[record.file];
    if (!record.metadata.empty()) file.metadata[record.stored.name] = std::move(record.metadata);
    file.tensors.push_back(std::move(record.stored));
  }
  return files;
}

}  // namespace ddl
