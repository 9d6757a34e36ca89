// MPI's collectives that the engine serves. What they mean is MPI's (MPI 3.1, chapter 5).

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "ddl/mpi_interposer/interposer.hpp"
#include "ddl/mpi_interposer/typed_buffer.hpp"

namespace ddl::mpi {
namespace {

/// A call that is being looked at: whether the engine is to serve it, and if not, why.
class Candidate {
 public:
  /// `is_valid`: MPI would not refuse its arguments at first sight.
  Candidate(Function function, MPI_Comm communicator, bool is_valid)
      : function_(function), interposer_(Interposer::current()) {
    if (interposer_ == nullptr) return;
    const bool blocks = function < Function::iallreduce;
    if (!is_valid || communicator == MPI_COMM_NULL) {
      pass_on(PassedOn::arguments);
    } else if (!blocks && !interposer_->has_thread()) {
      pass_on(PassedOn::no_thread);
    } else if (communicator_ = interposer_->serving(communicator, blocks); communicator_ == nullptr) {
      pass_on(blocks || communicator == MPI_COMM_WORLD ? PassedOn::communicator : PassedOn::not_open);
    }
  }

  explicit operator bool() const noexcept { return communicator_ != nullptr; }
  [[nodiscard]] Communicator& communicator() const noexcept { return *communicator_; }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(communicator_->size()); }

  void pass_on(PassedOn reason) {
    communicator_ = nullptr;
    interposer_->tally().passed_on(function_, reason, interposer_->context().log());
  }
  /// `bytes`, of the largest buffer of a rank, is the same on all ranks.
  void require_worth(std::size_t bytes) {
    if (communicator_ == nullptr || interposer_->serves_all()) return;
    const CallSize size{bytes, communicator_->size(), communicator_->rank_map().hosts()};
    if (!is_worth_serving(function_, size)) pass_on(PassedOn::slower);
  }
  /// Hands a non-blocking call's work over to MPI as a request.
  int add(MPI_Request* request, OpenRequests::Finish finish, Work work) const {
    return interposer_->requests().add(std::move(work), std::move(finish), request);
  }
  void count(std::size_t bytes) const { interposer_->tally().served(function_, bytes); }

 private:
  Function function_;
  Interposer* interposer_;
  Communicator* communicator_ = nullptr;
};

Reduction reduction_for(Candidate& call, std::size_t count, MPI_Datatype type, MPI_Op op) {
  if (!call) return {};
  const std::optional<Reduction> reduction = reduction_of(type, op);
  if (!reduction) {
    call.pass_on(PassedOn::type_or_operation);
    return {};
  }
  call.require_worth(count * reduction->each * size_of(reduction->type));
  return *reduction;
}

// MPI_Allreduce.

struct AllReduce {
  const void* input;
  void* output;
  std::size_t count;
  Reduction reduction;

  AllReduce(Candidate& call, const void* from, void* to, int elements, MPI_Datatype type, MPI_Op op)
      : input(from == MPI_IN_PLACE ? to : from), output(to), count(static_cast<std::size_t>(elements)) {
    reduction = reduction_for(call, count, type, op);
    if (!call) return;
    count *= reduction.each;
    call.count(count * size_of(reduction.type));
  }
};

// MPI_Bcast. The ranks may describe the same bytes in different ways.

std::optional<TypedBuffer> broadcast_buffer(Candidate& call, void* data, int count, MPI_Datatype type,
                                            int root) {
  if (!call) return std::nullopt;
  const bool has_root = root >= 0 && root < call.communicator().size();
  std::optional<TypedBuffer> buffer;
  if (has_root) buffer = TypedBuffer::of(data, count, type);
  if (!buffer) {
    call.pass_on(PassedOn::arguments);
    return std::nullopt;
  }
  call.require_worth(buffer->bytes());
  if (!call) return std::nullopt;
  call.count(buffer->bytes());
  if (call.communicator().rank() == root) buffer->pack();
  return buffer;
}

// MPI_Reduce_scatter and MPI_Reduce_scatter_block: to the engine, pieces of equal length.

struct ReduceScatter {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;  // of the engine's elements in a piece
  Reduction reduction;

  /// `counts`: of MPI's elements, by rank.
  ReduceScatter(Candidate& call, const void* from, void* to, std::span<const int> counts, MPI_Datatype type,
                MPI_Op op) {
    if (!call) return;
    const auto longest = static_cast<std::size_t>(std::ranges::max(counts));
    const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    // Shorter pieces are filled up, which costs that much more.
    constexpr std::size_t most_filling = 4;  // a fourth of all
    if (longest * counts.size() - total > total / most_filling) {
      call.pass_on(PassedOn::counts);
      return;
    }
    reduction = reduction_for(call, total, type, op);
    if (!call) return;
    const std::size_t element = reduction.each * size_of(reduction.type);
    call.count(total * element);
    count = longest * reduction.each;
    own_bytes_ =
        static_cast<std::size_t>(counts[static_cast<std::size_t>(call.communicator().rank())]) * element;
    result_ = static_cast<std::byte*>(to);
    const bool in_place = from == MPI_IN_PLACE;
    input = static_cast<const std::byte*>(in_place ? to : from);
    const std::size_t piece = longest * element;
    if (longest * counts.size() != total) {
      pieces_ = std::make_shared<std::byte[]>(piece * counts.size());
      const std::byte* next = input;
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        const std::size_t bytes = static_cast<std::size_t>(counts[rank]) * element;
        std::memcpy(pieces_.get() + rank * piece, next, bytes);
        next += bytes;
      }
      input = pieces_.get();
    }
    // In place, the result goes to where the first piece was, which may still be read.
    if (in_place || own_bytes_ != piece) beside_ = std::make_shared<std::byte[]>(piece);
    output = beside_ ? beside_.get() : result_;
  }
  void finish() const {
    if (beside_) std::memcpy(result_, beside_.get(), own_bytes_);
  }

 private:
  std::byte* result_ = nullptr;
  std::size_t own_bytes_ = 0;
  std::shared_ptr<std::byte[]> pieces_;
  std::shared_ptr<std::byte[]> beside_;
};

bool are_counts(const int* counts) { return counts != nullptr; }

std::span<const int> counts_of(const Candidate& call, const int* counts) {
  return call ? std::span(counts, call.ranks()) : std::span<const int>();
}

/// All ranks find the same wrong ones.
void check_counts(Candidate& call, std::span<const int> counts) {
  if (call && std::ranges::any_of(counts, [](int count) { return count < 0; }))
    call.pass_on(PassedOn::arguments);
}

// MPI_Allgather. Here, too, the ranks may describe the same bytes in different ways.

struct AllGather {
  std::optional<TypedBuffer> from;  // nothing: in place
  std::optional<TypedBuffer> to;
  std::size_t bytes = 0;  // of each rank

  AllGather(Candidate& call, const void* send, int send_count, MPI_Datatype send_type, void* receive,
            int receive_count, MPI_Datatype receive_type) {
    if (!call) return;
    const auto ranks = static_cast<std::int64_t>(call.ranks());
    const bool in_place = send == MPI_IN_PLACE;
    to = TypedBuffer::of(receive, receive_count * ranks, receive_type);
    if (!in_place) from = TypedBuffer::of(send, send_count, send_type);
    const bool is_valid = to && (in_place || (from && from->bytes() * call.ranks() == to->bytes()));
    if (!is_valid) {
      call.pass_on(PassedOn::arguments);
      return;
    }
    bytes = to->bytes() / call.ranks();
    call.require_worth(to->bytes());
    if (!call) return;
    call.count(to->bytes());
    in_place ? to->pack() : from->pack();
  }
  [[nodiscard]] const void* input(int rank) const {
    return from ? from->data() : to->data() + static_cast<std::size_t>(rank) * bytes;
  }
};

}  // namespace
}  // namespace ddl::mpi

using namespace ddl::mpi;
using ddl::Communicator;
using ddl::DataType;

extern "C" {

int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                  MPI_Comm comm) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::allreduce, comm, count >= 0);
    const AllReduce it(call, sendbuf, recvbuf, count, datatype, op);
    if (!call) return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
    if (it.count == 0) return MPI_SUCCESS;
    call.communicator().all_reduce(it.input, it.output, it.count, it.reduction.type, it.reduction.op);
    return MPI_SUCCESS;
  });
}

int MPI_Iallreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::iallreduce, comm, count >= 0 && request != nullptr);
    const AllReduce it(call, sendbuf, recvbuf, count, datatype, op);
    if (!call) return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
    return call.add(request, {},
                    call.communicator().all_reduce_async(it.input, it.output, it.count, it.reduction.type,
                                                         it.reduction.op));
  });
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::bcast, comm, count >= 0);
    std::optional<TypedBuffer> it = broadcast_buffer(call, buffer, count, datatype, root);
    if (!call) return PMPI_Bcast(buffer, count, datatype, root, comm);
    if (it->bytes() == 0) return MPI_SUCCESS;
    call.communicator().broadcast(it->data(), it->data(), it->bytes(), DataType::u8, root);
    if (call.communicator().rank() != root) it->unpack();
    return MPI_SUCCESS;
  });
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
               MPI_Request* request) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::ibcast, comm, count >= 0 && request != nullptr);
    const std::optional<TypedBuffer> it = broadcast_buffer(call, buffer, count, datatype, root);
    if (!call) return PMPI_Ibcast(buffer, count, datatype, root, comm, request);
    const bool receives = call.communicator().rank() != root;
    const auto finish = [buffer = *it, receives]() mutable {
      if (receives) buffer.unpack();
    };
    return call.add(
        request, finish,
        call.communicator().broadcast_async(it->data(), it->data(), it->bytes(), DataType::u8, root));
  });
}

int MPI_Reduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype,
                       MPI_Op op, MPI_Comm comm) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::reduce_scatter, comm, are_counts(recvcounts));
    check_counts(call, counts_of(call, recvcounts));
    const ReduceScatter it(call, sendbuf, recvbuf, counts_of(call, recvcounts), datatype, op);
    if (!call) return PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm);
    if (it.count == 0) return MPI_SUCCESS;
    call.communicator().reduce_scatter(it.input, it.output, it.count, it.reduction.type, it.reduction.op);
    it.finish();
    return MPI_SUCCESS;
  });
}

int MPI_Ireduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype,
                        MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::ireduce_scatter, comm, are_counts(recvcounts) && request != nullptr);
    check_counts(call, counts_of(call, recvcounts));
    const ReduceScatter it(call, sendbuf, recvbuf, counts_of(call, recvcounts), datatype, op);
    if (!call) return PMPI_Ireduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm, request);
    return call.add(
        request, [it] { it.finish(); },
        call.communicator().reduce_scatter_async(it.input, it.output, it.count, it.reduction.type,
                                                 it.reduction.op));
  });
}

int MPI_Reduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype,
                             MPI_Op op, MPI_Comm comm) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::reduce_scatter_block, comm, recvcount >= 0);
    const std::vector<int> counts(call ? call.ranks() : 0, recvcount);
    const ReduceScatter it(call, sendbuf, recvbuf, counts, datatype, op);
    if (!call) return PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm);
    if (it.count == 0) return MPI_SUCCESS;
    call.communicator().reduce_scatter(it.input, it.output, it.count, it.reduction.type, it.reduction.op);
    it.finish();
    return MPI_SUCCESS;
  });
}

int MPI_Ireduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype,
                              MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::ireduce_scatter_block, comm, recvcount >= 0 && request != nullptr);
    const std::vector<int> counts(call ? call.ranks() : 0, recvcount);
    const ReduceScatter it(call, sendbuf, recvbuf, counts, datatype, op);
    if (!call) return PMPI_Ireduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm, request);
    return call.add(
        request, [it] { it.finish(); },
        call.communicator().reduce_scatter_async(it.input, it.output, it.count, it.reduction.type,
                                                 it.reduction.op));
  });
}

int MPI_Allgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                  MPI_Datatype recvtype, MPI_Comm comm) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::allgather, comm, recvcount >= 0 && (sendbuf == MPI_IN_PLACE || sendcount >= 0));
    AllGather it(call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
    if (!call) return PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
    if (it.bytes == 0) return MPI_SUCCESS;
    Communicator& communicator = call.communicator();
    communicator.all_gather(it.input(communicator.rank()), it.to->data(), it.bytes, DataType::u8);
    it.to->unpack();
    return MPI_SUCCESS;
  });
}

int MPI_Iallgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return Interposer::guarded(comm, [&] {
    Candidate call(Function::iallgather, comm,
                   recvcount >= 0 && (sendbuf == MPI_IN_PLACE || sendcount >= 0) && request != nullptr);
    AllGather it(call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
    if (!call) {
      return PMPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request);
    }
    const auto finish = [it]() mutable { it.to->unpack(); };
    Communicator& communicator = call.communicator();
    return call.add(
        request, finish,
        communicator.all_gather_async(it.input(communicator.rank()), it.to->data(), it.bytes, DataType::u8));
  });
}

}  // extern "C"
