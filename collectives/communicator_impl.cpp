#include "collectives/communicator_impl.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

#include "collectives/plan_carriers.hpp"
#include "collectives/plan_comparison.hpp"
#include "collectives/reduce.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"

namespace ddl::collectives {

using topology::Collective;

namespace {

// Programs of earlier calls are kept up to these limits; a job that needs more starts over.
constexpr std::size_t most_programs = 512;
constexpr std::size_t most_kept_steps = std::size_t{1} << 20;

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

/// What ranks must agree on before they run a plan (FNV-1a).
std::uint64_t fingerprint(Collective collective, std::uint64_t size_class, DataType type,
                          std::uint64_t plan) {
  std::uint64_t result = 0xcbf29ce484222325;
  const std::array<std::uint64_t, 4> parts{static_cast<std::uint64_t>(collective), size_class,
                                           static_cast<std::uint64_t>(type), plan};
  for (const std::uint64_t part : parts) {
    for (int shift = 0; shift < 64; shift += 8) {
      result = (result ^ ((part >> shift) & 0xff)) * 0x100000001b3;
    }
  }
  return result;
}

}  // namespace

CommunicatorImpl::CommunicatorImpl(CommunicatorSettings settings, std::unique_ptr<Transport> transport)
    : settings_(std::move(settings)), transport_(std::move(transport)) {
  if (transport_ && settings_.plans) {
    executor_ = std::make_unique<Executor>(*transport_, settings_.map, settings_.rank, settings_.spins);
  } else if (size() > 1) {
    throw Error(ErrorCode::internal, "a communicator of several ranks needs a transport and plans");
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
  execute({Collective::all_reduce, 0, count, type},
          {"all_reduce", 0, static_cast<std::byte*>(data), count, type, op});
}

void CommunicatorImpl::broadcast(void* data, std::size_t bytes, int root) {
  check_data("broadcast", data, bytes, 1);
  if (root < 0 || root >= size()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("broadcast: root {} does not exist: this job has ranks 0 to {}", root, size() - 1));
  }
  execute({Collective::broadcast, root, bytes, DataType::u8},
          {"broadcast", 0, static_cast<std::byte*>(data), bytes, DataType::u8, ReduceOp::sum});
}

void CommunicatorImpl::barrier() {
  std::byte nothing{};
  execute({Collective::barrier, 0, 1, DataType::u8},
          {"barrier", 0, &nothing, 1, DataType::u8, ReduceOp::sum});
}

void CommunicatorImpl::run(const char* name, const PreparedProgram& program, void* data, DataType type,
                           ReduceOp op) {
  require_usable(name);
  const Operation operation{name, sequence_, static_cast<std::byte*>(data), program.count(), type, op};
  if (size() == 1) return;
  try {
    transport_->use_network_for_all(false);
    executor_->run(program, operation, deadline());
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void CommunicatorImpl::require_usable(const char* name) const {
  if (!closed_ && !failed_) return;
  throw Error(ErrorCode::transport,
              fmt::format("{}: {}", name,
                          closed_ ? "this communicator's context has been destroyed"
                                  : "an earlier collective of this communicator failed; restart the job"));
}

Clock::time_point CommunicatorImpl::deadline() const {
  return pauses_ != 0 ? Clock::time_point::max() : Clock::now() + settings_.deadline;
}

void CommunicatorImpl::execute(const Key& key, Operation operation) {
  require_usable(operation.name);
  operation.sequence = ++sequence_;
  if (size() == 1 || key.count == 0) return;
  try {
    const Clock::time_point until = deadline();
    run(runnable_for(key, operation, until), operation, until);
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void CommunicatorImpl::run(const Runnable& runnable, const Operation& operation, Clock::time_point deadline) {
  transport_->use_network_for_all(runnable.over_network);
  executor_->run(runnable.program, operation, deadline);
}

const CommunicatorImpl::Runnable& CommunicatorImpl::runnable_for(const Key& key, const Operation& operation,
                                                                 Clock::time_point deadline) {
  if (const auto found = runnables_.find(key); found != runnables_.end()) return found->second;
  const auto prepare = [&]() -> Runnable {
    if (key.collective == Collective::barrier) {
      return {PreparedProgram(topology::lower_barrier(size(), rank()), key.count)};
    }
    const Agreed& agreed = agreed_plan(key, operation, deadline);
    return {PreparedProgram(topology::lower(agreed.chosen->plan, rank(), key.count, key.root), key.count,
                            agreed.chosen->names),
            agreed.over_network};
  };
  Runnable runnable = prepare();
  if (runnables_.size() >= most_programs || kept_steps_ >= most_kept_steps) {
    runnables_.clear();
    kept_steps_ = 0;
  }
  kept_steps_ += runnable.program.steps().size();
  return runnables_.emplace(key, std::move(runnable)).first->second;
}

const CommunicatorImpl::Agreed& CommunicatorImpl::agreed_plan(const Key& key, const Operation& operation,
                                                              Clock::time_point deadline) {
  const std::uint64_t bytes = key.count * size_of(key.type);
  const PlanKey plan_key{key.collective, size_class(bytes), key.type};
  if (const auto found = agreed_.find(plan_key); found != agreed_.end()) return found->second;
  const std::shared_ptr<const ChosenPlan> chosen = settings_.plans->plan(key.collective, bytes, key.type);
  require_agreement(plan_key, *chosen, operation, deadline);
  const bool wants_network = wants_mpi_alone(chosen->plan);
  const bool over_network = transport_->use_network_for_all(wants_network);
  if (observer_) {
    std::vector<std::string> notes = chosen->plan.notes;
    for (std::string& note : carrier_notes(chosen->plan, over_network)) notes.push_back(std::move(note));
    observer_(chosen->plan, notes);
  }
  return agreed_.emplace(plan_key, Agreed{chosen, over_network}).first->second;
}

void CommunicatorImpl::require_agreement(const PlanKey& key, const ChosenPlan& chosen,
                                         const Operation& operation, Clock::time_point deadline) {
  if (!comparison_) {
    const auto names =
        std::make_shared<PlanNames>(PlanNames{"the comparison of plans before the first use", {}});
    comparison_.emplace(greatest_program(size(), rank(), 2), 2, names);
  }
  std::array<std::int64_t, 2> greatest =
      comparison_of(fingerprint(key.collective, key.size_class, key.type, chosen.hash));
  const Operation comparison{
      operation.name,  operation.sequence, reinterpret_cast<std::byte*>(greatest.data()),
      greatest.size(), DataType::i64,      ReduceOp::max,
      &operation};
  transport_->use_network_for_all(false);
  executor_->run(*comparison_, comparison, deadline);
  if (are_equal(greatest)) return;
  throw Error(
      ErrorCode::mismatch,
      fmt::format("{} #{} ({} {}) on rank {}: another rank called something else, or has another plan "
                  "for it. This rank's plan has the hash {:016x}: {}. All ranks must call the same "
                  "collectives with the same counts, types and roots, in the same order, and have the "
                  "same DDL_OPTIONS and DDL_PLAN",
                  operation.name, operation.sequence, operation.count, to_string(operation.type), rank(),
                  chosen.hash, chosen.names->plan));
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
