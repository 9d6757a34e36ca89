// The MPI collectives that the engine serves; their semantics are those of MPI 3.1, chapter 5.

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/executor/waiting.hpp"
#include "ddl/mpi_interposer/interposer.hpp"
#include "ddl/mpi_interposer/program_memory.hpp"
#include "ddl/mpi_interposer/typed_buffer.hpp"

namespace ddl::mpi {
namespace {

using collectives::CommunicatorImpl;

/// A call that the engine may serve.
struct Call {
  Function function;
  const Interposer::Known& known;
  Tally& tally;
  const Context& context;

  [[nodiscard]] CommunicatorImpl& communicator() const noexcept { return *known.served->communicator; }
  [[nodiscard]] collectives::Place place() const noexcept { return communicator().place(); }
  [[nodiscard]] std::size_t ranks() const noexcept { return known.ranks; }
  /// `bytes`: the size of a rank's largest buffer, which is the same on all ranks.
  [[nodiscard]] bool is_worth(std::size_t bytes) const noexcept {
    return known.served->sizes.include(function, bytes);
  }

  /// `bytes` is as for `is_worth`: all ranks see the same, so no rank waits for one that has nothing to send.
  void run(collectives::Request request, std::size_t bytes) const {
    const collectives::Meanwhile meanwhile(&Interposer::drive_mpi);
    tally.served(function, bytes);
    if (bytes == 0) return;
    const ProgramMemory::Leases leases = ProgramMemory::of_process().lease(request, context);
    communicator().run(request);
  }
};

/// Why a call is left to MPI; nothing for a call that was served.
using Attempt = std::optional<PassedOn>;

/// The elements of a call: of the whole buffer, or of each rank's piece.
struct Elements {
  MPI_Datatype type;
  int count;
  enum class Of : std::uint8_t { whole, piece, unequal_pieces } of = Of::whole;

  /// Whether MPI is known to be faster. Else the attempt finds out.
  [[nodiscard]] bool are_left(Function function, const Interposer::Known& known) const noexcept {
    const auto elements = static_cast<std::size_t>(count) * (of == Of::piece ? known.ranks : 1);
    return of != Of::unequal_pieces && !known.served->sizes.include(function, elements * known.element_bytes);
  }
};

/// Serves a call or leaves it to MPI. `attempt` gets a Call and the user's arguments, and returns why the
/// call is left to MPI, or nothing once it is served.
template <typename... Arguments>
int serve(Function function, Elements elements, Attempt (*attempt)(const Call&, Arguments...),
          const auto& mpi, MPI_Comm comm, std::type_identity_t<Arguments>... arguments) {
  Interposer* const interposer = Interposer::current();
  if (interposer == nullptr) return mpi(arguments..., comm);
  const Interposer::Known* known = interposer->known(comm, elements.type);
  Attempt passed_on;
  if (known != nullptr && elements.are_left(function, *known)) {
    passed_on = PassedOn::slower;
  } else {
    const int result = Interposer::guarded(comm, [&] {
      if (known == nullptr && comm != MPI_COMM_NULL) known = &interposer->find(comm, elements.type);
      passed_on =
          known == nullptr ? PassedOn::arguments
          : !known->served->communicator
              ? PassedOn::communicator
              : attempt(Call{function, *known, interposer->tally(), interposer->context()}, arguments...);
      return MPI_SUCCESS;
    });
    if (!passed_on) return result;
  }
  interposer->tally().passed_on(function, *passed_on, interposer->context());
  return mpi(arguments..., comm);
}

// Each attempt leaves invalid arguments to MPI, which reports them.

/// `request_of`: from the number of the engine's elements, and the reduction.
Attempt reduce_whole(const Call& call, int count, MPI_Datatype type, MPI_Op op, const auto& request_of) {
  if (count < 0) return PassedOn::arguments;
  const std::optional<Reduction> reduction = reduction_of(type, op);
  if (!reduction) return PassedOn::type_or_operation;
  const std::size_t elements = as_index(count) * reduction->each;
  const std::size_t bytes = elements * size_of(reduction->type);
  if (!call.is_worth(bytes)) return PassedOn::slower;
  call.run(request_of(elements, *reduction), bytes);
  return {};
}

Attempt all_reduce(const Call& call, const void* from, void* to, int count, MPI_Datatype type, MPI_Op op) {
  return reduce_whole(call, count, type, op, [&](std::size_t elements, Reduction reduction) {
    const void* const input = from == MPI_IN_PLACE ? to : from;
    return collectives::all_reduce_request(input, to, elements, reduction.type, reduction.op);
  });
}

Attempt reduce(const Call& call, const void* from, void* to, int count, MPI_Datatype type, MPI_Op op,
               int root) {
  if (root < 0 || root >= call.place().size) return PassedOn::arguments;
  return reduce_whole(call, count, type, op, [&](std::size_t elements, Reduction reduction) {
    const void* const input = from == MPI_IN_PLACE ? to : from;
    return reduce_request(call.place(), input, to, elements, reduction.type, reduction.op, root);
  });
}

/// Moves bytes, because ranks may describe the same data by different counts and types.
Attempt broadcast(const Call& call, void* data, int count, MPI_Datatype type, int root) {
  if (count < 0 || root < 0 || root >= call.place().size) return PassedOn::arguments;
  std::optional<TypedBuffer> buffer = TypedBuffer::of(data, count, type, call.known.element_bytes);
  if (!buffer) return PassedOn::arguments;
  if (!call.is_worth(buffer->bytes())) return PassedOn::slower;
  const bool is_root = call.place().rank == root;
  if (is_root) buffer->pack();
  call.run(
      broadcast_request(call.place(), buffer->data(), buffer->data(), buffer->bytes(), DataType::u8, root),
      buffer->bytes());
  if (!is_root) buffer->unpack();
  return {};
}

/// Pieces of equal length, `count` elements of the engine each.
void reduce_equal(const Call& call, const void* input, void* to, std::size_t count, Reduction reduction) {
  call.run(reduce_scatter_request(call.place(), input, to, count, reduction.type, reduction.op),
           call.ranks() * count * size_of(reduction.type));
}

/// As `reduce_equal`, with the first `own` bytes of the result in `to`, which the engine may still read when
/// it writes the result: in place, or shorter than a piece.
void reduce_beside(const Call& call, const void* input, void* to, std::size_t own, std::size_t count,
                   Reduction reduction) {
  std::vector<std::byte> beside(count * size_of(reduction.type));
  reduce_equal(call, input, beside.data(), count, reduction);
  std::memcpy(to, beside.data(), own);
}

/// The engine needs pieces of equal length, so shorter ones are padded.
Attempt reduce_scatter(const Call& call, const void* from, void* to, const int* counts, MPI_Datatype type,
                       MPI_Op op) {
  if (counts == nullptr) return PassedOn::arguments;
  // All ranks see the same counts, so all of them leave the call to MPI.
  const std::span pieces(counts, call.ranks());
  if (std::ranges::any_of(pieces, [](int count) { return count < 0; })) return PassedOn::arguments;
  const auto longest = as_index(std::ranges::max(pieces));
  const auto total = std::accumulate(pieces.begin(), pieces.end(), std::size_t{0});
  constexpr std::size_t most_filling = 4;  // padding may take a fourth of all elements
  if (longest * pieces.size() - total > total / most_filling) return PassedOn::counts;
  const std::optional<Reduction> reduction = reduction_of(type, op);
  if (!reduction) return PassedOn::type_or_operation;
  const std::size_t element = reduction->each * size_of(reduction->type);
  if (!call.is_worth(total * element)) return PassedOn::slower;

  const std::size_t piece = longest * element;
  const std::size_t own = as_index(pieces[as_index(call.place().rank)]) * element;
  const bool in_place = from == MPI_IN_PLACE;
  const auto* input = static_cast<const std::byte*>(in_place ? to : from);
  std::vector<std::byte> padded;
  if (longest * pieces.size() != total) {
    padded.resize(piece * pieces.size());
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
      const std::size_t bytes = as_index(pieces[rank]) * element;
      std::memcpy(padded.data() + rank * piece, input, bytes);
      input += bytes;
    }
    input = padded.data();
  }
  if (in_place || own != piece) {
    reduce_beside(call, input, to, own, longest * reduction->each, *reduction);
  } else {
    reduce_equal(call, input, to, longest * reduction->each, *reduction);
  }
  return {};
}

Attempt reduce_scatter_block(const Call& call, const void* from, void* to, int count, MPI_Datatype type,
                             MPI_Op op) {
  if (count < 0) return PassedOn::arguments;
  const std::optional<Reduction> reduction = reduction_of(type, op);
  if (!reduction) return PassedOn::type_or_operation;
  const std::size_t elements = as_index(count) * reduction->each;
  const std::size_t piece = elements * size_of(reduction->type);
  if (!call.is_worth(call.ranks() * piece)) return PassedOn::slower;
  if (from == MPI_IN_PLACE) {
    reduce_beside(call, to, to, piece, elements, *reduction);
  } else {
    reduce_equal(call, from, to, elements, *reduction);
  }
  return {};
}

/// Moves bytes, as `broadcast` does.
Attempt all_gather(const Call& call, const void* send, int send_count, MPI_Datatype send_type, void* receive,
                   int receive_count, MPI_Datatype receive_type) {
  if (receive_count < 0 || (send != MPI_IN_PLACE && send_count < 0)) return PassedOn::arguments;
  std::optional<TypedBuffer> to =
      TypedBuffer::of(receive, receive_count * static_cast<std::int64_t>(call.ranks()), receive_type,
                      call.known.element_bytes);
  if (!to) return PassedOn::arguments;
  if (!call.is_worth(to->bytes())) return PassedOn::slower;
  const std::size_t bytes = to->bytes() / call.ranks();
  std::optional<TypedBuffer> from;  // empty: in place
  if (send != MPI_IN_PLACE) {
    const std::size_t plain = send_type == receive_type ? call.known.element_bytes : plain_bytes(send_type);
    from = TypedBuffer::of(send, send_count, send_type, plain);
    if (!from || from->bytes() * call.ranks() != to->bytes()) return PassedOn::arguments;
  }
  from ? from->pack() : to->pack();
  const collectives::Place place = call.place();
  const void* const input = from ? from->data() : to->data() + as_index(place.rank) * bytes;
  call.run(all_gather_request(place, input, to->data(), bytes, DataType::u8), to->bytes());
  to->unpack();
  return {};
}

}  // namespace
}  // namespace ddl::mpi

using namespace ddl::mpi;

extern "C" {

int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                  MPI_Comm comm) {
  return serve(Function::allreduce, {datatype, count}, all_reduce, PMPI_Allreduce, comm, sendbuf, recvbuf,
               count, datatype, op);
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
  return serve(Function::bcast, {datatype, count}, broadcast, PMPI_Bcast, comm, buffer, count, datatype,
               root);
}

int MPI_Reduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype,
                       MPI_Op op, MPI_Comm comm) {
  return serve(Function::reduce_scatter, {datatype, 0, Elements::Of::unequal_pieces}, reduce_scatter,
               PMPI_Reduce_scatter, comm, sendbuf, recvbuf, recvcounts, datatype, op);
}

int MPI_Reduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype,
                             MPI_Op op, MPI_Comm comm) {
  return serve(Function::reduce_scatter_block, {datatype, recvcount, Elements::Of::piece},
               reduce_scatter_block, PMPI_Reduce_scatter_block, comm, sendbuf, recvbuf, recvcount, datatype,
               op);
}

int MPI_Allgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                  MPI_Datatype recvtype, MPI_Comm comm) {
  return serve(Function::allgather, {recvtype, recvcount, Elements::Of::piece}, all_gather, PMPI_Allgather,
               comm, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
}

int MPI_Reduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root,
               MPI_Comm comm) {
  return serve(Function::reduce, {datatype, count}, reduce, PMPI_Reduce, comm, sendbuf, recvbuf, count,
               datatype, op, root);
}

}  // extern "C"
