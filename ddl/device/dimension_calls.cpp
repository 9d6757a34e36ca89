#include "ddl/device/dimension_calls.hpp"

#include "collectives/device/kernels.hpp"

namespace ddl::device {

using topology::Collective;

std::vector<ElementRange> cut(std::size_t count, std::size_t each, std::size_t unit) {
  const std::size_t length = std::max((each + unit - 1) / unit, std::size_t{1}) * unit;
  std::vector<ElementRange> ranges;
  for (std::size_t first = 0; first < count; first += length) {
    ranges.push_back({first, std::min(length, count - first)});
  }
  return ranges;
}

DimensionCalls::DimensionCalls(const Context& context, std::span<std::byte> scratch)
    : context_(context), scratch_(scratch) {
  const topology::RankMap& map = context.communicator().rank_map();
  for (int rank = 0; rank < map.ranks(); ++rank) {
    const auto index = as_index(map.local_rank(rank));
    columns_.resize(std::max(columns_.size(), index + 1));
    columns_[index].push_back(rank);
  }
  context.on_all_ranks("plans on devices", [&] {
    check_cuda(collectives::device::load_network_kernels(), "cudaFuncGetAttributes");
    for (Stream* stream : {&inside_, &between_}) *stream = make_stream();
    joint_ = make_event();
    for (Event& event : slot_free_) event = make_event();
  });
}

/// Divides complete sums for an average, on the stream of the dimension between the hosts.
void DimensionCalls::finish(const DeviceCall& call, std::byte* values, std::size_t count) const {
  if (call.op != ReduceOp::avg) return;
  collectives::device::Combination whole{
      .target = values, .operands = 1, .divisor = context_.size(), .elements = count};
  whole.sources[0] = values;
  collectives::device::launch_combine(whole, call.type, ReduceOp::avg, between_.get());
}

/// The call that is being queued.
struct DimensionCalls::Call {
  DimensionCalls& all;
  const DeviceCall& call;
  const std::size_t wanted_chunks;
  const PassOn& pass_on;

  const std::size_t element = size_of(call.type);
  const std::size_t members = all.columns_.size();  // ranks of a host
  const std::size_t hosts = all.columns_.front().size();
  const std::size_t own_member = as_index(all.context_.local_rank());
  const DeviceStream inside = all.inside_.get();
  const DeviceStream between = all.between_.get();
  mutable std::size_t rounded = 0;  // elements of the residual that earlier parts use

  void run() {
    join(call.stream, inside);
    join(call.stream, between);
    switch (call.collective) {
      case Collective::all_reduce:
        all_reduce();
        break;
      case Collective::reduce_scatter:
        reduce_scatter();
        break;
      case Collective::all_gather:
        all_gather();
        break;
      case Collective::broadcast:
        broadcast();
        break;
      default:
        reduce();
    }
    join(inside, call.stream);
    join(between, call.stream);
  }

  void join(DeviceStream first, DeviceStream then) const { device::join(first, then, all.joint_); }

  void part(std::size_t dimension, Collective collective, const std::byte* input, std::byte* output,
            std::size_t count, std::size_t root = 0) const {
    DeviceCall made = call.part(collective, input, output, count);
    made.root = static_cast<int>(root);
    made.op = call.op == ReduceOp::avg ? ReduceOp::sum : call.op;
    made.stream = dimension == 0 ? inside : between;
    if (dimension == 1 && call.residual != nullptr) {
      made.residual = call.residual + rounded;
      rounded += count * pieces_of(collective, static_cast<int>(hosts));
    }
    pass_on(dimension, made);
  }

  /// Elements [first, first + count), and the scratch memory for their intermediate results.
  struct Chunk {
    std::size_t first;
    std::size_t count;
    std::byte* scratch;
    std::size_t slot;
    bool is_again;  // an earlier chunk of this call uses the same slot
  };
  [[nodiscard]] std::size_t chunk_length() const { return (call.count + wanted_chunks - 1) / wanted_chunks; }
  /// Cuts the call into the plan's number of chunks, or more if the scratch memory is too small for
  /// `of_scratch` scratch elements for each element.
  [[nodiscard]] std::vector<Chunk> chunks(std::size_t of_scratch) const {
    constexpr std::size_t line = 128;
    const std::size_t in_line = line / element;
    std::size_t each = chunk_length();
    const std::size_t room = all.scratch_.size() / slots / line * line;
    if (of_scratch > 0) each = std::min(each, room / element / of_scratch);
    if (each > in_line) each = each / in_line * in_line;
    std::vector<Chunk> result;
    for (const auto& [first, count] : cut(call.count, each, 1)) {
      const std::size_t slot = result.size() % slots;
      result.push_back({first, count, all.scratch_.data() + slot * room, slot, result.size() >= slots});
    }
    return result;
  }
  void begin(const Chunk& chunk, DeviceStream stream) const {
    if (!chunk.is_again) return;
    check_cuda(cudaStreamWaitEvent(stream, all.slot_free_[chunk.slot].get(), 0), "cudaStreamWaitEvent");
  }
  void end(const Chunk& chunk, DeviceStream stream) const {
    check_cuda(cudaEventRecord(all.slot_free_[chunk.slot].get(), stream), "cudaEventRecord");
  }

  /// Copies a chunk of all ranks' pieces between scratch memory, ordered by column, and the caller's memory,
  /// ordered by rank. Calls `copy(packed, at, pitch, pieces)` with the byte offset of the first of `pieces`
  /// pieces in scratch memory, its offset in the caller's memory, and the pitch of the caller's pieces.
  template <typename Copy>
  void copy_columns(const Chunk& chunk, const Copy& copy) const {
    const std::size_t piece = call.count * element;
    std::size_t packed = 0;
    for (const std::vector<int>& column : all.columns_) {
      // A column whose ranks are evenly spaced, the usual case, takes one copy.
      const int step = column[1] - column[0];
      const auto is_uneven = [&](int rank, int next) { return step <= 0 || next - rank != step; };
      const bool is_even = std::ranges::adjacent_find(column, is_uneven) == column.end();
      const std::size_t at_once = is_even ? hosts : 1;
      const std::size_t pitch = static_cast<std::size_t>(is_even ? step : 1) * piece;
      for (std::size_t host = 0; host < hosts; host += at_once) {
        copy(packed, as_index(column[host]) * piece + chunk.first * element, pitch, at_once);
        packed += at_once * chunk.count * element;
      }
    }
  }

  void all_reduce() const {
    const std::size_t rest_count = call.count % members;
    const std::vector<ElementRange> chunks = cut(call.count - rest_count, chunk_length(), members);
    const auto own = [&](const ElementRange& chunk) {
      return call.output + (chunk.first + own_member * (chunk.count / members)) * element;
    };
    const auto gather = [&](const ElementRange& chunk) {
      join(between, inside);
      part(0, Collective::all_gather, own(chunk), call.output + chunk.first * element, chunk.count / members);
    };
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const ElementRange& chunk = chunks[i];
      const std::size_t share = chunk.count / members;
      part(0, Collective::reduce_scatter, call.input + chunk.first * element, own(chunk), share);
      // Queues the gather of the previous chunk behind this chunk's scatter, so that the previous chunk's
      // phase between the hosts overlaps it.
      if (i > 0) gather(chunks[i - 1]);
      join(inside, between);
      part(1, Collective::all_reduce, own(chunk), own(chunk), share);
      all.finish(call, own(chunk), share);
    }
    if (!chunks.empty()) gather(chunks.back());
    if (rest_count == 0) return;
    // The rest has fewer elements than a host has ranks, so every rank reduces all of them.
    const std::size_t at = (call.count - rest_count) * element;
    std::byte* const rest = call.output + at;
    part(0, Collective::all_reduce, call.input + at, rest, rest_count);
    join(inside, between);
    part(1, Collective::all_reduce, rest, rest, rest_count);
    all.finish(call, rest, rest_count);
  }

  /// Member i of each host sums the pieces of column i over its host; then the column scatters the sums.
  void reduce_scatter() const {
    for (const Chunk& chunk : chunks((members + 1) * hosts)) {
      std::byte* const sums = chunk.scratch + members * hosts * chunk.count * element;
      std::byte* const output = call.output + chunk.first * element;
      begin(chunk, inside);
      const std::size_t bytes = chunk.count * element;
      copy_columns(chunk, [&](std::size_t packed, std::size_t at, std::size_t pitch, std::size_t pieces) {
        copy_pieces(chunk.scratch + packed, bytes, call.input + at, pitch, bytes, pieces,
                    cudaMemcpyDeviceToDevice, inside);
      });
      part(0, Collective::reduce_scatter, chunk.scratch, sums, hosts * chunk.count);
      join(inside, between);
      part(1, Collective::reduce_scatter, sums, output, chunk.count);
      all.finish(call, output, chunk.count);
      end(chunk, between);
    }
  }

  void all_gather() const {
    for (const Chunk& chunk : chunks((members + 1) * hosts)) {
      std::byte* const column = chunk.scratch + members * hosts * chunk.count * element;
      begin(chunk, between);
      part(1, Collective::all_gather, call.input + chunk.first * element, column, chunk.count);
      join(between, inside);
      part(0, Collective::all_gather, column, chunk.scratch, hosts * chunk.count);
      const std::size_t bytes = chunk.count * element;
      copy_columns(chunk, [&](std::size_t packed, std::size_t at, std::size_t pitch, std::size_t pieces) {
        copy_pieces(call.output + at, pitch, chunk.scratch + packed, bytes, bytes, pieces,
                    cudaMemcpyDeviceToDevice, inside);
      });
      end(chunk, inside);
    }
  }

  [[nodiscard]] std::size_t member_of_root() const {
    return as_index(all.context_.communicator().rank_map().local_rank(call.root));
  }
  [[nodiscard]] std::size_t host_of_root() const {
    const std::vector<int>& column = all.columns_[member_of_root()];
    return as_index(std::ranges::find(column, call.root) - column.begin());
  }

  /// The root's column receives the data first, then each of its members broadcasts it inside its host.
  void broadcast() const {
    const bool is_root = all.context_.rank() == call.root;
    for (const Chunk& chunk : chunks(0)) {
      const std::byte* input = is_root ? call.input + chunk.first * element : nullptr;
      std::byte* const output = call.output + chunk.first * element;
      if (own_member == member_of_root()) {
        part(1, Collective::broadcast, input, output, chunk.count, host_of_root());
        join(between, inside);
        input = output;
      }
      part(0, Collective::broadcast, input, output, chunk.count, member_of_root());
    }
  }

  void reduce() const {
    const bool is_root = all.context_.rank() == call.root;
    for (const Chunk& chunk : chunks(1)) {
      std::byte* const sum = is_root ? call.output + chunk.first * element : chunk.scratch;
      if (own_member == member_of_root()) begin(chunk, inside);
      part(0, Collective::reduce, call.input + chunk.first * element, sum, chunk.count, member_of_root());
      if (own_member != member_of_root()) continue;
      join(inside, between);
      part(1, Collective::reduce, sum, sum, chunk.count, host_of_root());
      if (is_root) all.finish(call, sum, chunk.count);
      end(chunk, between);
    }
  }
};

void DimensionCalls::run(const DeviceCall& call, int chunks, const PassOn& pass_on) {
  Call{*this, call, as_index(chunks), pass_on}.run();
}

}  // namespace ddl::device
