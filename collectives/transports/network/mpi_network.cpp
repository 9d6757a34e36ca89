#include "collectives/transports/network/mpi_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/transports/network/message_tags.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 30;  // MPI counts in int
constexpr auto longest_goodbye = std::chrono::seconds(10);

std::string text_of(int result) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  PMPI_Error_string(result, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

void check_mpi(int result, const char* call) {
  if (result != MPI_SUCCESS) {
    throw Error(ErrorCode::transport, fmt::format("{} failed: {}", call, text_of(result)));
  }
}

namespace {

std::int64_t largest_tag(MPI_Comm communicator) {
  int* value = nullptr;
  int found = 0;
  check_mpi(PMPI_Comm_get_attr(communicator, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
  constexpr std::int64_t least_by_the_standard = 32767;
  return found != 0 ? *value : least_by_the_standard;
}

/// A piece of a message and what is called, which is compared where it arrives.
MPI_Datatype bytes_and_fingerprint(std::byte* data, int bytes, std::uint32_t& fingerprint) {
  const std::array<int, 2> lengths{bytes, static_cast<int>(sizeof fingerprint)};
  std::array<MPI_Aint, 2> places{};
  PMPI_Get_address(data, &places[0]);
  PMPI_Get_address(&fingerprint, &places[1]);
  const std::array<MPI_Datatype, 2> types{MPI_BYTE, MPI_BYTE};
  MPI_Datatype piece = MPI_DATATYPE_NULL;
  check_mpi(PMPI_Type_create_struct(2, lengths.data(), places.data(), types.data(), &piece),
            "MPI_Type_create_struct");
  check_mpi(PMPI_Type_commit(&piece), "MPI_Type_commit");
  return piece;
}

struct Operation {
  Transfer* transfer = nullptr;
  MessageTag tag;
  std::size_t bytes = 0;
  int peer = 0;
  bool receives = false;
  int pieces = 0;                 // that are under way
  std::uint32_t fingerprint = 0;  // goes along with each piece; of a receive: what has come
  bool is_other = false;          // a receive that another call's message has taken
  Operation* next_unused = nullptr;
};

}  // namespace

struct MpiNetwork::State {
  explicit State(MPI_Comm communicator) : tags(largest_tag(communicator)) {}

  MpiTags tags;
  std::vector<MPI_Comm> communicators;
  int ranks = 0;
  bool any_thread = false;

  std::vector<MPI_Request> requests;
  struct Piece {
    Operation* operation;
    int bytes;
  };
  std::vector<Piece> pieces;  // as requests
  std::vector<int> indices;
  std::vector<MPI_Status> statuses;
  std::deque<Operation> operations;
  Operation* unused = nullptr;
  std::vector<const Operation*> others;  // messages of ranks that have called something else

  std::string failure;
  bool abandoned = false;

  /// `post(datatype, tag, communicator, request)` for one MPI_BOTTOM of the datatype.
  template <typename Post>
  void start(int peer, MessageTag tag, std::byte* data, std::size_t bytes, bool receives, Transfer& transfer,
             Post post);
  bool test();
  void end_piece(const Piece& piece, int result, const MPI_Status& status);
  void fail(Operation& operation, const std::string& why);
};

template <typename Post>
void MpiNetwork::State::start(int peer, MessageTag tag, std::byte* data, std::size_t bytes, bool receives,
                              Transfer& transfer, Post post) {
  if (abandoned) {
    throw Error(ErrorCode::transport, "the network was abandoned after a failure: nothing is sent any more");
  }
  if (peer < 0 || peer >= ranks) {
    throw Error(ErrorCode::internal, fmt::format("a transfer with rank {}, of {}", peer, ranks));
  }
  if (tag.communicator >= tags.communicators()) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("a message of communicator {}: this MPI's tags have room for {} communicators; free "
                    "those that are not used any more, or let the hosts talk through UCX (DDL_NETWORK=ucx)",
                    tag.communicator, tags.communicators()));
  }
  if (unused == nullptr) unused = &operations.emplace_back();
  Operation& operation = *std::exchange(unused, unused->next_unused);
  operation = {&transfer, tag, bytes, peer, receives};
  if (!receives) operation.fingerprint = tag.fingerprint;
  transfer.state = Transfer::State::active;
  transfer.handle = &operation;

  const MpiTags::Place place = tags.of(tag);
  std::size_t offset = 0;
  do {
    const auto length = static_cast<int>(std::min(bytes - offset, piece_bytes));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype piece = bytes_and_fingerprint(data + offset, length, operation.fingerprint);
    const int result = post(piece, place.tag, communicators[static_cast<std::size_t>(place.copy)], &request);
    PMPI_Type_free(&piece);  // when the message is over
    if (result != MPI_SUCCESS) {
      if (operation.pieces == 0) {
        operation.next_unused = std::exchange(unused, &operation);
        transfer.state = Transfer::State::idle;
      }
      check_mpi(result, receives ? "MPI_Irecv" : "MPI_Isend");
    }
    ++operation.pieces;
    requests.push_back(request);
    pieces.push_back({&operation, length});
    offset += static_cast<std::size_t>(length);
  } while (offset < bytes);
}

void MpiNetwork::State::fail(Operation& operation, const std::string& why) {
  operation.transfer->state = Transfer::State::failed;
  if (!failure.empty()) return;
  failure = fmt::format("message {} of call {} of communicator {}, {} bytes, {} rank {} failed: {}",
                        operation.tag.message, operation.tag.call, operation.tag.communicator,
                        operation.bytes, operation.receives ? "from" : "to", operation.peer, why);
}

void MpiNetwork::State::end_piece(const Piece& piece, int result, const MPI_Status& status) {
  Operation& operation = *piece.operation;
  int error_class = MPI_SUCCESS;
  PMPI_Error_class(result, &error_class);
  if (result != MPI_SUCCESS && error_class != MPI_ERR_TRUNCATE) {
    fail(operation, text_of(result));
  } else if (operation.receives) {
    int arrived = 0;
    PMPI_Get_count(&status, MPI_BYTE, &arrived);
    const int expected = piece.bytes + static_cast<int>(sizeof operation.fingerprint);
    if (result != MPI_SUCCESS || arrived != expected || operation.fingerprint != operation.tag.fingerprint) {
      operation.is_other = true;
    }
  }
  if (--operation.pieces > 0) return;
  if (operation.is_other) {
    others.push_back(&operation);  // the transfer never ends
    return;
  }
  if (operation.transfer->state != Transfer::State::failed) operation.transfer->state = Transfer::State::done;
  operation.next_unused = std::exchange(unused, &operation);
}

bool MpiNetwork::State::test() {
  if (requests.empty()) {
    // A peer's send may not be over before MPI moves on here once more.
    int found = 0;
    check_mpi(PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicators.front(), &found, MPI_STATUS_IGNORE),
              "MPI_Iprobe");
    return false;
  }
  indices.resize(requests.size());
  statuses.resize(requests.size());
  int over = 0;
  const int result = PMPI_Testsome(static_cast<int>(requests.size()), requests.data(), &over, indices.data(),
                                   statuses.data());
  if (result != MPI_ERR_IN_STATUS) check_mpi(result, "MPI_Testsome");
  if (over <= 0) return false;
  for (int i = 0; i < over; ++i) {
    const MPI_Status& status = statuses[static_cast<std::size_t>(i)];
    end_piece(pieces[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)])],
              result == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS, status);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    requests[kept] = requests[i];
    pieces[kept++] = pieces[i];
  }
  requests.resize(kept);
  pieces.resize(kept);
  return true;
}

MpiNetwork::MpiNetwork(MPI_Comm communicator) {
  const std::int64_t largest = largest_tag(communicator);
  if (largest < (std::int64_t{1} << MpiTags::least_bits) - 1) {
    throw Error(ErrorCode::unsupported, fmt::format("this MPI's tags end at {}: at least {} bits are needed",
                                                    largest, MpiTags::least_bits));
  }
  state_ = std::make_unique<State>(communicator);
  check_mpi(PMPI_Comm_size(communicator, &state_->ranks), "MPI_Comm_size");
  int provided = MPI_THREAD_SINGLE;
  check_mpi(PMPI_Query_thread(&provided), "MPI_Query_thread");
  state_->any_thread = provided == MPI_THREAD_MULTIPLE;
  for (int i = 0; i < state_->tags.copies(); ++i) {
    MPI_Comm copy = MPI_COMM_NULL;
    check_mpi(PMPI_Comm_dup(communicator, &copy), "MPI_Comm_dup");
    state_->communicators.push_back(copy);
  }
}

MpiNetwork::~MpiNetwork() {
  State& state = *state_;
  if (state.abandoned) return;
  const auto until = Clock::now() + longest_goodbye;
  const auto sends = [&] {
    return std::any_of(state.pieces.begin(), state.pieces.end(),
                       [](const State::Piece& piece) { return !piece.operation->receives; });
  };
  try {
    while (sends() && Clock::now() < until) {
      if (!state.test()) std::this_thread::yield();
    }
  } catch (const Error&) {
    // The collective that needed these messages reports it.
  }
  for (std::size_t i = 0; i < state.requests.size(); ++i) {
    if (!state.pieces[i].operation->receives) continue;
    PMPI_Cancel(&state.requests[i]);
    PMPI_Wait(&state.requests[i], MPI_STATUS_IGNORE);
  }
  // The copies of the communicator stay until MPI ends: to free them is collective.
}

/// A message of another call has been taken by a receive of this one, or is for the other channel.
bool MpiNetwork::has_other(int peer, MessageTag tag) const {
  const State& state = *state_;
  const bool was_taken = std::ranges::any_of(state.others, [&](const Operation* other) {
    return other->peer == peer && other->tag.communicator == tag.communicator && other->tag.call == tag.call;
  });
  if (was_taken || state.abandoned) return was_taken;
  tag.communicator ^= 1;
  tag.message = 0;  // there is always a first one
  const MpiTags::Place place = state.tags.of(tag);
  int found = 0;
  PMPI_Iprobe(peer, place.tag, state.communicators[static_cast<std::size_t>(place.copy)], &found,
              MPI_STATUS_IGNORE);
  return found != 0;
}

int MpiNetwork::communicators() const { return state_->tags.communicators(); }
bool MpiNetwork::any_thread() const { return state_->any_thread; }

void MpiNetwork::send(int peer, MessageTag tag, std::span<const std::byte> bytes, Transfer& transfer) {
  auto* const data = const_cast<std::byte*>(bytes.data());  // only read
  state_->start(peer, tag, data, bytes.size(), false, transfer,
                [&](MPI_Datatype piece, int number, MPI_Comm communicator, MPI_Request* request) {
                  return PMPI_Isend(MPI_BOTTOM, 1, piece, peer, number, communicator, request);
                });
}

void MpiNetwork::receive(int peer, MessageTag tag, std::span<std::byte> bytes, Transfer& transfer) {
  state_->start(peer, tag, bytes.data(), bytes.size(), true, transfer,
                [&](MPI_Datatype piece, int number, MPI_Comm communicator, MPI_Request* request) {
                  return PMPI_Irecv(MPI_BOTTOM, 1, piece, peer, number, communicator, request);
                });
}

bool MpiNetwork::progress() { return !state_->abandoned && state_->test(); }

std::string MpiNetwork::failure() const { return state_->failure; }

void MpiNetwork::abandon() noexcept {
  State& state = *state_;
  if (std::exchange(state.abandoned, true)) return;
  for (std::size_t i = 0; i < state.requests.size(); ++i) {
    if (state.pieces[i].operation->receives) PMPI_Cancel(&state.requests[i]);
  }
}

}  // namespace ddl::collectives
