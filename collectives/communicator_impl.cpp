#include "collectives/communicator_impl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/reduce.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"

namespace ddl::collectives {
namespace {

// Steps of this many calls are kept; a program that uses more kinds of calls starts over.
constexpr std::size_t most_schedules = 512;

constexpr std::size_t short_broadcast = std::size_t{64} << 10;
constexpr std::size_t broadcast_chunk = std::size_t{128} << 10;
constexpr std::size_t most_chunks = 256;

void check_data(const char* name, const void* data, std::size_t count, std::size_t element) {
  if (count == 0) return;
  if (data == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the data is null, but {} elements were given", name, count));
  }
  if (count > std::numeric_limits<std::size_t>::max() / element) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: {} elements of {} bytes are more than memory can hold", name, count, element));
  }
}

}  // namespace

CommunicatorImpl::CommunicatorImpl(CommunicatorSettings settings, std::unique_ptr<Transport> transport)
    : settings_(std::move(settings)), transport_(std::move(transport)) {
  if (transport_) {
    executor_ = std::make_unique<Executor>(*transport_, settings_.map, settings_.rank, settings_.spins);
  } else if (size() > 1) {
    throw Error(ErrorCode::internal, "a communicator of several ranks needs a transport");
  }
}

CommunicatorImpl::~CommunicatorImpl() = default;

void CommunicatorImpl::all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) {
  const std::size_t element = size_of(type);
  if (element == 0 || op > ReduceOp::prod) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("all_reduce: {} of {}", to_string(op), to_string(type)));
  }
  check_data("all_reduce", data, count, element);
  execute({Kind::all_reduce, 0, count, element},
          {"all_reduce", 0, static_cast<std::byte*>(data), count, type, op});
}

void CommunicatorImpl::broadcast(void* data, std::size_t bytes, int root) {
  check_data("broadcast", data, bytes, 1);
  if (root < 0 || root >= size()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("broadcast: root {} does not exist: this job has ranks 0 to {}", root, size() - 1));
  }
  execute({Kind::broadcast, root, bytes, 1},
          {"broadcast", 0, static_cast<std::byte*>(data), bytes, DataType::u8, ReduceOp::sum});
}

void CommunicatorImpl::barrier() {
  std::byte nothing{};
  execute({Kind::barrier, 0, 1, 1}, {"barrier", 0, &nothing, 1, DataType::u8, ReduceOp::sum});
}

const topology::Steps& CommunicatorImpl::steps_for(const Key& key) {
  if (const auto found = schedules_.find(key); found != schedules_.end()) return found->second;
  if (schedules_.size() >= most_schedules) schedules_.clear();
  const auto lower = [&]() -> topology::Steps {
    const topology::RankMap& map = settings_.map;
    switch (key.kind) {
      case Kind::all_reduce:
        return settings_.all_reduce == AllReduceAlgorithm::ring
                   ? topology::lower_ring_all_reduce(map, settings_.rank, key.count)
                   : topology::lower_hierarchical_all_reduce(map, settings_.rank, key.count);
      case Kind::broadcast: {
        const bool is_short = key.count <= short_broadcast;
        const std::size_t chunk =
            is_short ? short_broadcast : std::max(broadcast_chunk, key.count / most_chunks);
        return topology::lower_broadcast(
            map, settings_.rank, key.count, key.root, chunk,
            is_short ? topology::TreeShape::binomial : topology::TreeShape::chain);
      }
      case Kind::barrier:
        return topology::lower_barrier(map, settings_.rank);
    }
    return {};
  };
  return schedules_.emplace(key, lower()).first->second;
}

void CommunicatorImpl::execute(const Key& key, Operation operation) {
  if (closed_ || failed_) {
    throw Error(ErrorCode::transport,
                fmt::format("{}: {}", operation.name,
                            closed_ ? "this communicator's context has been destroyed"
                                    : "an earlier collective of this communicator failed; restart the job"));
  }
  operation.sequence = ++sequence_;
  if (size() == 1) return;
  const bool paused = pauses_ != 0;
  const topology::Steps& steps = steps_for(key);
  try {
    executor_->run(steps, operation, paused ? Clock::time_point::max() : Clock::now() + settings_.deadline);
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void CommunicatorImpl::announce_failure() {
  if (transport_ && !std::exchange(announced_, true)) transport_->announce_failure();
}

void CommunicatorImpl::close() {
  if (std::exchange(closed_, true)) return;
  if (transport_ && !std::exchange(announced_, true)) transport_->announce_leaving();
  executor_.reset();
  transport_.reset();
}

}  // namespace ddl::collectives
