// The MPI collectives that the engine serves; their semantics are those of MPI 3.1, chapter 5.

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/mpi_interposer/interposer.hpp"
#include "ddl/mpi_interposer/typed_buffer.hpp"

namespace ddl::mpi {
namespace {

using collectives::CommunicatorImpl;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

/// The smallest size in bytes at which the engine serves a function, with all ranks on one host and on
/// several. The values come from measurements on unshared memory against Open MPI 4.1 on two cores
/// (`benchmarks/mpi_program.py`, table in benchmarks/README.md). Most served calls are faster there;
/// exceptions are MPI_Allreduce of 4 ranks below 1 KiB, and of 256 KiB between hosts. The root of MPI's
/// broadcast inside a host does not wait for its peers, hence the high limit. Non-blocking calls pay for the
/// hand-over to the engine's thread and back.
struct Least {
  std::size_t on_a_host, between_hosts;
};
constexpr Least least_for(Function function) noexcept {
  switch (function) {
    case Function::allreduce:
      return {0, 0};
    case Function::bcast:
      return {1 * mib, 16 * kib};
    case Function::reduce_scatter:
    case Function::reduce_scatter_block:
    case Function::allgather:
      return {4 * kib, 256 * kib};
    default:
      return {512 * kib, 512 * kib};
  }
}

constexpr bool blocks(Function function) noexcept { return function < Function::iallreduce; }

/// A call that the engine may serve.
struct Call {
  Function function;
  const CommunicatorImpl& communicator;
  bool serves_all;

  [[nodiscard]] std::size_t ranks() const noexcept { return as_index(communicator.size()); }
  /// `bytes`: the size of a rank's largest buffer, which is the same on all ranks.
  [[nodiscard]] bool is_worth(std::size_t bytes) const noexcept {
    if (serves_all) return true;
    const Least least = least_for(function);
    if (communicator.rank_map().hosts() > 1) return bytes >= least.between_hosts;
    // MPI copies large pieces between processes with a single copy.
    if (function == Function::allgather && ranks() == 2 && bytes > 64 * kib) return false;
    return bytes >= least.on_a_host;
  }
};

/// The engine's work for a call.
struct Task {
  collectives::Request request;
  std::size_t bytes = 0;              ///< Size of a rank's largest buffer.
  std::function<void()> finish = {};  ///< Called after the request, unless it is empty.
};
using Decision = std::variant<PassedOn, Task>;

/// Serves a call or leaves it to MPI. `decide` gets a Call and the user's arguments; `mpi` gets the
/// arguments, `comm` and, for a non-blocking call, `request`.
template <typename... Arguments>
int serve(Function function, Decision (*decide)(const Call&, Arguments...), const auto& mpi, MPI_Comm comm,
          MPI_Request* request, std::type_identity_t<Arguments>... arguments) {
  const auto leave_to_mpi = [&]() -> int {
    if constexpr (std::is_invocable_v<decltype(mpi), Arguments..., MPI_Comm>) {
      return mpi(arguments..., comm);
    } else {
      return mpi(arguments..., comm, request);
    }
  };
  return Interposer::guarded(comm, [&]() -> int {
    Interposer* const interposer = Interposer::current();
    if (interposer == nullptr) return leave_to_mpi();
    CommunicatorImpl* communicator = nullptr;
    const auto decided = [&]() -> Decision {
      if (comm == MPI_COMM_NULL || (!blocks(function) && request == nullptr)) return PassedOn::arguments;
      if (!blocks(function) && !interposer->has_thread()) return PassedOn::no_thread;
      communicator = interposer->serving(comm, blocks(function));
      if (communicator != nullptr) {
        return decide(Call{function, *communicator, interposer->serves_all()}, arguments...);
      }
      return blocks(function) || comm == MPI_COMM_WORLD ? PassedOn::communicator : PassedOn::not_open;
    };
    Decision decision = decided();
    if (const auto* const reason = std::get_if<PassedOn>(&decision)) {
      interposer->tally().passed_on(function, *reason, interposer->context().log());
      return leave_to_mpi();
    }
    Task& task = std::get<Task>(decision);
    interposer->tally().served(function, task.bytes);
    // All ranks see the same size, so no rank waits for one that has nothing to send.
    const bool is_empty = task.bytes == 0;
    if (!blocks(function)) {
      Work work = is_empty ? Work() : Work(communicator->start(task.request));
      return interposer->requests().add(std::move(work), std::move(task.finish), request);
    }
    if (!is_empty) communicator->run(task.request);
    if (task.finish) task.finish();
    return MPI_SUCCESS;
  });
}

// Each decision leaves invalid arguments to MPI, which reports them.

Decision all_reduce(const Call& call, const void* from, void* to, int count, MPI_Datatype type, MPI_Op op) {
  if (count < 0) return PassedOn::arguments;
  const std::optional<Reduction> reduction = reduction_of(type, op);
  if (!reduction) return PassedOn::type_or_operation;
  const std::size_t elements = as_index(count) * reduction->each;
  const std::size_t bytes = elements * size_of(reduction->type);
  if (!call.is_worth(bytes)) return PassedOn::slower;
  const void* const input = from == MPI_IN_PLACE ? to : from;
  return Task{collectives::all_reduce_request(input, to, elements, reduction->type, reduction->op), bytes};
}

/// Moves bytes, because ranks may describe the same data by different counts and types.
Decision broadcast(const Call& call, void* data, int count, MPI_Datatype type, int root) {
  if (count < 0 || root < 0 || root >= call.communicator.size()) return PassedOn::arguments;
  std::optional<TypedBuffer> buffer = TypedBuffer::of(data, count, type);
  if (!buffer) return PassedOn::arguments;
  if (!call.is_worth(buffer->bytes())) return PassedOn::slower;
  const bool is_root = call.communicator.rank() == root;
  if (is_root) buffer->pack();
  Task task{broadcast_request(call.communicator.place(), buffer->data(), buffer->data(), buffer->bytes(),
                              DataType::u8, root),
            buffer->bytes()};
  if (buffer->is_packed()) {
    task.finish = [is_root, own = *buffer]() mutable {
      if (!is_root) own.unpack();
    };
  }
  return task;
}

/// The engine needs pieces of equal length, so shorter ones are padded. `counts`: MPI elements by rank.
Decision reduce_scatter_pieces(const Call& call, const void* from, void* to, std::span<const int> counts,
                               MPI_Datatype type, MPI_Op op) {
  // All ranks see the same counts, so all of them leave the call to MPI.
  if (std::ranges::any_of(counts, [](int count) { return count < 0; })) return PassedOn::arguments;
  const auto longest = as_index(std::ranges::max(counts));
  const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  constexpr std::size_t most_filling = 4;  // padding may take a fourth of all elements
  if (longest * counts.size() - total > total / most_filling) return PassedOn::counts;
  const std::optional<Reduction> reduction = reduction_of(type, op);
  if (!reduction) return PassedOn::type_or_operation;
  const std::size_t element = reduction->each * size_of(reduction->type);
  if (!call.is_worth(total * element)) return PassedOn::slower;

  const std::size_t piece = longest * element;
  const auto own = as_index(call.communicator.rank());
  const std::size_t own_bytes = static_cast<std::size_t>(counts[own]) * element;
  const bool in_place = from == MPI_IN_PLACE;
  const auto* input = static_cast<const std::byte*>(in_place ? to : from);
  std::shared_ptr<std::byte[]> pieces;
  if (longest * counts.size() != total) {
    pieces = std::make_shared<std::byte[]>(piece * counts.size());
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const std::size_t bytes = static_cast<std::size_t>(counts[rank]) * element;
      std::memcpy(pieces.get() + rank * piece, input, bytes);
      input += bytes;
    }
    input = pieces.get();
  }
  // The engine may still read the first piece, which an in-place result overwrites: hence other memory.
  std::shared_ptr<std::byte[]> beside;
  if (in_place || own_bytes != piece) beside = std::make_shared<std::byte[]>(piece);
  Task task{reduce_scatter_request(call.communicator.place(), input, beside ? beside.get() : to,
                                   longest * reduction->each, reduction->type, reduction->op),
            total * element};
  if (pieces || beside) {
    task.finish = [pieces, beside, to, own_bytes] {
      if (beside) std::memcpy(to, beside.get(), own_bytes);
    };
  }
  return task;
}

Decision reduce_scatter(const Call& call, const void* from, void* to, const int* counts, MPI_Datatype type,
                        MPI_Op op) {
  if (counts == nullptr) return PassedOn::arguments;
  return reduce_scatter_pieces(call, from, to, {counts, call.ranks()}, type, op);
}

Decision reduce_scatter_block(const Call& call, const void* from, void* to, int count, MPI_Datatype type,
                              MPI_Op op) {
  return reduce_scatter_pieces(call, from, to, std::vector(call.ranks(), count), type, op);
}

/// Moves bytes, as `broadcast` does.
Decision all_gather(const Call& call, const void* send, int send_count, MPI_Datatype send_type, void* receive,
                    int receive_count, MPI_Datatype receive_type) {
  if (receive_count < 0 || (send != MPI_IN_PLACE && send_count < 0)) return PassedOn::arguments;
  std::optional<TypedBuffer> to =
      TypedBuffer::of(receive, receive_count * static_cast<std::int64_t>(call.ranks()), receive_type);
  if (!to) return PassedOn::arguments;
  const std::size_t bytes = to->bytes() / call.ranks();
  std::optional<TypedBuffer> from;  // empty: in place
  if (send != MPI_IN_PLACE) {
    from = TypedBuffer::of(send, send_count, send_type);
    if (!from || from->bytes() * call.ranks() != to->bytes()) return PassedOn::arguments;
  }
  if (!call.is_worth(to->bytes())) return PassedOn::slower;
  from ? from->pack() : to->pack();
  const collectives::Place place = call.communicator.place();
  const void* const input = from ? from->data() : to->data() + as_index(place.rank) * bytes;
  Task task{all_gather_request(place, input, to->data(), bytes, DataType::u8), to->bytes()};
  if (to->is_packed() || (from && from->is_packed())) {
    task.finish = [from, own = *to]() mutable { own.unpack(); };
  }
  return task;
}

}  // namespace
}  // namespace ddl::mpi

using namespace ddl::mpi;

extern "C" {

int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                  MPI_Comm comm) {
  return serve(Function::allreduce, all_reduce, PMPI_Allreduce, comm, nullptr, sendbuf, recvbuf, count,
               datatype, op);
}

int MPI_Iallreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  return serve(Function::iallreduce, all_reduce, PMPI_Iallreduce, comm, request, sendbuf, recvbuf, count,
               datatype, op);
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
  return serve(Function::bcast, broadcast, PMPI_Bcast, comm, nullptr, buffer, count, datatype, root);
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
               MPI_Request* request) {
  return serve(Function::ibcast, broadcast, PMPI_Ibcast, comm, request, buffer, count, datatype, root);
}

int MPI_Reduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype,
                       MPI_Op op, MPI_Comm comm) {
  return serve(Function::reduce_scatter, reduce_scatter, PMPI_Reduce_scatter, comm, nullptr, sendbuf, recvbuf,
               recvcounts, datatype, op);
}

int MPI_Ireduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype,
                        MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return serve(Function::ireduce_scatter, reduce_scatter, PMPI_Ireduce_scatter, comm, request, sendbuf,
               recvbuf, recvcounts, datatype, op);
}

int MPI_Reduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype,
                             MPI_Op op, MPI_Comm comm) {
  return serve(Function::reduce_scatter_block, reduce_scatter_block, PMPI_Reduce_scatter_block, comm, nullptr,
               sendbuf, recvbuf, recvcount, datatype, op);
}

int MPI_Ireduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype,
                              MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return serve(Function::ireduce_scatter_block, reduce_scatter_block, PMPI_Ireduce_scatter_block, comm,
               request, sendbuf, recvbuf, recvcount, datatype, op);
}

int MPI_Allgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                  MPI_Datatype recvtype, MPI_Comm comm) {
  return serve(Function::allgather, all_gather, PMPI_Allgather, comm, nullptr, sendbuf, sendcount, sendtype,
               recvbuf, recvcount, recvtype);
}

int MPI_Iallgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return serve(Function::iallgather, all_gather, PMPI_Iallgather, comm, request, sendbuf, sendcount, sendtype,
               recvbuf, recvcount, recvtype);
}

}  // extern "C"
