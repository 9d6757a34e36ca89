#include "collectives/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

constexpr std::size_t message_bytes = std::size_t{128} << 10;  // far below MPI's limit of 2^31 - 1
constexpr std::size_t slots_per_peer = 4;
constexpr int tag = 0;
constexpr auto longest_goodbye = std::chrono::seconds(10);

void check(int result, const char* call, int peer) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw Error(ErrorCode::transport, fmt::format("{} with rank {} failed: {}", call, peer,
                                                std::string(text.data(), static_cast<std::size_t>(length))));
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm communicator) : communicator_(communicator) {
  int size = 0;
  check(MPI_Comm_size(communicator, &size), "MPI_Comm_size", 0);
  outgoing_.resize(static_cast<std::size_t>(size));
  incoming_.resize(static_cast<std::size_t>(size));
}

MpiTransport::~MpiTransport() {
  // After a failure nothing is waited for: the process ends without MPI_Finalize, and the buffers
  // must stay where MPI may still write to them.
  if (failed_) {
    static_cast<void>(new std::vector<Outgoing>(std::move(outgoing_)));
    static_cast<void>(new std::vector<Incoming>(std::move(incoming_)));
    return;
  }
  const auto until = Clock::now() + longest_goodbye;
  try {
    while (!flushed() && Clock::now() < until) std::this_thread::yield();
  } catch (const Error&) {
    // The collective that needed these bytes reports it.
  }
  for (Incoming& from : incoming_) {
    for (Slot& slot : from.slots) {
      if (slot.request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&slot.request);
      MPI_Wait(&slot.request, MPI_STATUS_IGNORE);
    }
  }
}

std::size_t MpiTransport::write_some(int peer, std::span<const std::byte> bytes) {
  Outgoing& to = outgoing_[static_cast<std::size_t>(peer)];
  if (to.slots.empty()) {
    to.slots.resize(slots_per_peer);
    for (Slot& slot : to.slots) slot.bytes.resize(message_bytes);
    sent_to_.push_back(peer);
  }
  Slot& slot = to.slots[to.next];
  if (slot.request != MPI_REQUEST_NULL) {
    int done = 0;
    check(MPI_Test(&slot.request, &done, MPI_STATUS_IGNORE), "MPI_Test of a send", peer);
    if (done == 0) return 0;
  }
  const std::size_t length = std::min(bytes.size(), message_bytes);
  std::memcpy(slot.bytes.data(), bytes.data(), length);
  check(MPI_Isend(slot.bytes.data(), static_cast<int>(length), MPI_BYTE, peer, tag, communicator_,
                  &slot.request),
        "MPI_Isend", peer);
  to.next = (to.next + 1) % to.slots.size();
  return length;
}

void MpiTransport::post(int peer, Slot& slot) {
  check(MPI_Irecv(slot.bytes.data(), static_cast<int>(slot.bytes.size()), MPI_BYTE, peer, tag, communicator_,
                  &slot.request),
        "MPI_Irecv", peer);
}

std::span<const std::byte> MpiTransport::readable(int peer) {
  Incoming& from = incoming_[static_cast<std::size_t>(peer)];
  if (from.slots.empty()) {
    from.slots.resize(slots_per_peer);
    for (Slot& slot : from.slots) {
      slot.bytes.resize(message_bytes);
      post(peer, slot);
    }
  }
  Slot& slot = from.slots[from.first];
  if (!from.arrived) {
    int done = 0;
    MPI_Status status;
    check(MPI_Test(&slot.request, &done, &status), "MPI_Test of a receive", peer);
    if (done == 0) return {};
    int length = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count", peer);
    from.arrived = true;
    from.length = static_cast<std::size_t>(length);
    from.used = 0;
  }
  return std::span<const std::byte>(slot.bytes).subspan(from.used, from.length - from.used);
}

void MpiTransport::consume(int peer, std::size_t bytes) {
  Incoming& from = incoming_[static_cast<std::size_t>(peer)];
  from.used += bytes;
  if (from.used < from.length) return;
  post(peer, from.slots[from.first]);
  from.first = (from.first + 1) % from.slots.size();
  from.arrived = false;
}

bool MpiTransport::flushed() {
  bool all_done = true;
  for (const int peer : sent_to_) {
    for (Slot& slot : outgoing_[static_cast<std::size_t>(peer)].slots) {
      if (slot.request == MPI_REQUEST_NULL) continue;
      int done = 0;
      check(MPI_Test(&slot.request, &done, MPI_STATUS_IGNORE), "MPI_Test of a send", peer);
      all_done = all_done && done != 0;
    }
  }
  return all_done;
}

}  // namespace ddl::collectives
