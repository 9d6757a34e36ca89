#include "collectives/transports/network/mpi_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/transports/network/message_tags.hpp"
#include "ddl/topology/as_index.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

std::string text_of(int result) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  PMPI_Error_string(result, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::int64_t checked_largest_tag(MPI_Comm communicator) {
  int* value = nullptr;
  int found = 0;
  check_mpi(PMPI_Comm_get_attr(communicator, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
  constexpr std::int64_t least_by_the_standard = 32767;
  const std::int64_t largest = found != 0 ? *value : least_by_the_standard;
  if (largest < (std::int64_t{1} << MpiTags::least_bits) - 1) {
    fail_with(ErrorCode::unsupported, "this MPI's largest tag is {}, expected tags of at least {} bits",
              largest, MpiTags::least_bits);
  }
  return largest;
}

/// A datatype for a message and the call's fingerprint, which the receiver compares.
MPI_Datatype bytes_and_fingerprint(std::byte* data, std::size_t bytes, std::uint32_t& fingerprint) {
  const std::array<int, 2> lengths{static_cast<int>(bytes), static_cast<int>(sizeof fingerprint)};
  std::array<MPI_Aint, 2> places{};
  PMPI_Get_address(data, &places[0]);
  PMPI_Get_address(&fingerprint, &places[1]);
  const std::array<MPI_Datatype, 2> types{MPI_BYTE, MPI_BYTE};
  MPI_Datatype both = MPI_DATATYPE_NULL;
  check_mpi(PMPI_Type_create_struct(2, lengths.data(), places.data(), types.data(), &both),
            "MPI_Type_create_struct");
  check_mpi(PMPI_Type_commit(&both), "MPI_Type_commit");
  return both;
}

struct Operation {
  Transfer* transfer = nullptr;
  MessageTag tag;
  std::size_t bytes = 0;
  int peer = 0;
  bool receives = false;
  std::uint32_t fingerprint = 0;  // a receive's: as it arrived
  Operation* next_unused = nullptr;
};

/// Each message carries its call's fingerprint. Programs are cut into messages far below the 2 GiB that MPI's
/// counts allow.
class MpiNetwork final : public Network {
 public:
  explicit MpiNetwork(MPI_Comm communicator) : tags_(checked_largest_tag(communicator)) {
    check_mpi(PMPI_Comm_size(communicator, &ranks_), "MPI_Comm_size");
    int provided = MPI_THREAD_SINGLE;
    check_mpi(PMPI_Query_thread(&provided), "MPI_Query_thread");
    any_thread_ = provided == MPI_THREAD_MULTIPLE;
    for (int i = 0; i < tags_.copies(); ++i) communicators_.push_back(duplicate_of(communicator));
  }

  ~MpiNetwork() override {
    if (abandoned_) return;
    const auto until = Clock::now() + longest_goodbye;
    const auto receives = [](const Operation* operation) { return operation->receives; };
    try {
      while (!std::ranges::all_of(in_flight_, receives) && Clock::now() < until) {
        if (!progress()) std::this_thread::yield();
      }
    } catch (const Error&) {
      // The collective that needs these messages reports the error.
    }
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (!receives(in_flight_[i])) continue;
      PMPI_Cancel(&requests_[i]);
      PMPI_Wait(&requests_[i], MPI_STATUS_IGNORE);
    }
    // The duplicated communicators are left to MPI_Finalize, because freeing them is collective.
  }

  [[nodiscard]] std::string name() const override { return "mpi"; }
  [[nodiscard]] int communicators() const override { return tags_.communicators(); }
  [[nodiscard]] bool any_thread() const override { return any_thread_; }

  void send(int peer, MessageTag tag, std::span<const std::byte> bytes, Transfer& transfer) override {
    auto* const data = const_cast<std::byte*>(bytes.data());  // not written to
    start({&transfer, tag, bytes.size(), peer, false, tag.fingerprint}, data);
  }
  void receive(int peer, MessageTag tag, std::span<std::byte> bytes, Transfer& transfer) override {
    start({&transfer, tag, bytes.size(), peer, true}, bytes.data());
  }

  /// Checks whether a receive of this call matched a message of another one, or one waits in the other
  /// channel.
  [[nodiscard]] bool has_other(int peer, MessageTag tag) const override {
    const bool was_taken = std::ranges::any_of(others_, [&](const Operation* other) {
      return other->peer == peer && other->tag.communicator == tag.communicator &&
             other->tag.call == tag.call;
    });
    if (was_taken || abandoned_) return was_taken;
    tag.communicator ^= 1;
    tag.message = 0;  // every call has a message 0
    const MpiTags::Place place = tags_.of(tag);
    int found = 0;
    PMPI_Iprobe(peer, place.tag, communicator_of(place), &found, MPI_STATUS_IGNORE);
    return found != 0;
  }

  bool progress() override {
    if (abandoned_) return false;
    if (requests_.empty()) {
      // A peer's send may need progress in this rank's MPI library.
      int found = 0;
      check_mpi(PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicators_.front(), &found, MPI_STATUS_IGNORE),
                "MPI_Iprobe");
      return false;
    }
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int over = 0;
    const int result = PMPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &over,
                                     indices_.data(), statuses_.data());
    if (result != MPI_ERR_IN_STATUS) check_mpi(result, "MPI_Testsome");
    if (over <= 0) return false;
    for (int i = 0; i < over; ++i) {
      const MPI_Status& status = statuses_[as_index(i)];
      end(*in_flight_[as_index(indices_[as_index(i)])],
          result == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS, status);
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      in_flight_[kept++] = in_flight_[i];
    }
    requests_.resize(kept);
    in_flight_.resize(kept);
    return true;
  }

  [[nodiscard]] std::string failure() const override { return failure_; }

  /// MPI cannot cancel a receive of which a part has arrived, but nothing here calls MPI any more.
  void abandon() noexcept override {
    if (std::exchange(abandoned_, true)) return;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (in_flight_[i]->receives) PMPI_Cancel(&requests_[i]);
    }
  }

 private:
  [[nodiscard]] MPI_Comm communicator_of(const MpiTags::Place& place) const {
    return communicators_[as_index(place.copy)];
  }

  void start(const Operation& wanted, std::byte* data) {
    if (abandoned_) {
      throw Error(ErrorCode::transport,
                  "the network was abandoned after a failure: nothing is sent any more");
    }
    if (wanted.peer < 0 || wanted.peer >= ranks_) {
      fail_with(ErrorCode::internal, "a transfer with rank {}, of {}", wanted.peer, ranks_);
    }
    if (wanted.tag.communicator >= tags_.communicators()) {
      fail_with(ErrorCode::unsupported,
                "a message of communicator {}: this MPI's tags have room for {} communicators; free "
                "those that are not used any more, or let the hosts talk through UCX (DDL_NETWORK=ucx)",
                wanted.tag.communicator, tags_.communicators());
    }
    if (unused_ == nullptr) unused_ = &operations_.emplace_back();
    Operation& operation = *std::exchange(unused_, unused_->next_unused);
    operation = wanted;
    Transfer& transfer = *operation.transfer;
    transfer.state = Transfer::State::active;
    transfer.handle = &operation;

    const MpiTags::Place place = tags_.of(operation.tag);
    const MPI_Comm communicator = communicator_of(place);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype message = bytes_and_fingerprint(data, operation.bytes, operation.fingerprint);
    const int result =
        operation.receives
            ? PMPI_Irecv(MPI_BOTTOM, 1, message, operation.peer, place.tag, communicator, &request)
            : PMPI_Isend(MPI_BOTTOM, 1, message, operation.peer, place.tag, communicator, &request);
    PMPI_Type_free(&message);  // takes effect once the message is complete
    if (result != MPI_SUCCESS) {
      recycle(operation);
      transfer.state = Transfer::State::idle;
      check_mpi(result, wanted.receives ? "MPI_Irecv" : "MPI_Isend");
    }
    requests_.push_back(request);
    in_flight_.push_back(&operation);
  }

  void end(Operation& operation, int result, const MPI_Status& status) {
    int error_class = MPI_SUCCESS;
    PMPI_Error_class(result, &error_class);
    if (result != MPI_SUCCESS && error_class != MPI_ERR_TRUNCATE) {
      fail(operation, text_of(result));
    } else if (operation.receives) {
      int arrived = 0;
      PMPI_Get_count(&status, MPI_BYTE, &arrived);
      if (result != MPI_SUCCESS || operation.fingerprint != operation.tag.fingerprint ||
          static_cast<std::size_t>(arrived) != operation.bytes + sizeof operation.fingerprint) {
        others_.push_back(&operation);  // the transfer never completes
        return;
      }
    }
    if (operation.transfer->state != Transfer::State::failed)
      operation.transfer->state = Transfer::State::done;
    recycle(operation);
  }

  void recycle(Operation& operation) noexcept { operation.next_unused = std::exchange(unused_, &operation); }

  void fail(Operation& operation, const std::string& why) {
    operation.transfer->state = Transfer::State::failed;
    if (!failure_.empty()) return;
    failure_ = fmt::format("message {} of call {} of communicator {}, {} bytes, {} rank {} failed: {}",
                           operation.tag.message, operation.tag.call, operation.tag.communicator,
                           operation.bytes, operation.receives ? "from" : "to", operation.peer, why);
  }

  const MpiTags tags_;
  std::vector<MPI_Comm> communicators_;
  int ranks_ = 0;
  bool any_thread_ = false;

  std::vector<MPI_Request> requests_;
  std::vector<Operation*> in_flight_;  // by index in requests_
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::deque<Operation> operations_;
  Operation* unused_ = nullptr;
  std::vector<const Operation*> others_;  // receives that matched messages of other calls

  std::string failure_;
  bool abandoned_ = false;
};

}  // namespace

void check_mpi(int result, const char* call) {
  if (result != MPI_SUCCESS) fail_with(ErrorCode::transport, "{} failed: {}", call, text_of(result));
}

MPI_Comm duplicate_of(MPI_Comm communicator) {
  constexpr int tag = 0xdd1;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm duplicate = MPI_COMM_NULL;
  check_mpi(PMPI_Comm_group(communicator, &members), "MPI_Comm_group");
  check_mpi(PMPI_Comm_create_group(communicator, members, tag, &duplicate), "MPI_Comm_create_group");
  PMPI_Group_free(&members);
  check_mpi(PMPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return duplicate;
}

std::unique_ptr<Network> make_mpi_network(MPI_Comm communicator) {
  return std::make_unique<MpiNetwork>(communicator);
}

}  // namespace ddl::collectives
