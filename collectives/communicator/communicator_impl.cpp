#include "collectives/communicator/communicator_impl.hpp"

#include <fmt/format.h>

#include <initializer_list>
#include <optional>
#include <utility>

#include "collectives/communicator/plan_carriers.hpp"
#include "collectives/communicator/plan_comparison.hpp"
#include "ddl/error.hpp"
#include "ddl/topology/lowering.hpp"

namespace ddl::collectives {

using topology::Collective;

namespace {

// Programs of earlier calls are kept up to these limits; a job that needs more starts over.
constexpr std::size_t most_programs = 512;
constexpr std::size_t most_kept_steps = std::size_t{1} << 20;

/// FNV-1a.
std::uint64_t hash_of(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t result = 0xcbf29ce484222325;
  for (const std::uint64_t part : parts) {
    for (int shift = 0; shift < 64; shift += 8) {
      result = (result ^ ((part >> shift) & 0xff)) * 0x100000001b3;
    }
  }
  return result;
}

// Each communicator has two numbers in messages: calls that differ between ranks, so that some compare and
// others do not, wait for each other in vain instead of taking each other's data.
std::uint16_t of_calls(int number) { return static_cast<std::uint16_t>(2 * number); }
std::uint16_t of_comparisons(int number) { return static_cast<std::uint16_t>(2 * number + 1); }

Error as_error(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return *own;
  return {ErrorCode::internal, error.what()};
}

}  // namespace

struct CommunicatorImpl::Pending {
  Call call;
  PlanUse* use = nullptr;
  Comparison comparison{};
  bool compares = false;
  std::shared_ptr<WorkState> work = std::make_shared<WorkState>();
};

CommunicatorImpl::CommunicatorImpl(std::shared_ptr<Job> job, CommunicatorSettings settings)
    : job_(std::move(job)), settings_(std::move(settings)) {
  if (size() == 1) return;
  const auto names =
      std::make_shared<const PlanNames>(PlanNames{"the comparison of plans before the first use", {}});
  comparison_ = prepare(greatest_program(size(), rank(), Comparison().size()), Comparison().size(),
                        sizeof(Comparison::value_type), false, names);
}

CommunicatorImpl::~CommunicatorImpl() = default;

// Calls.

void CommunicatorImpl::run(const Request& request) {
  std::unique_lock order(order_mutex_);
  job_->require_usable(request.name);
  ++sequence_;
  if (size() == 1 || request.elements == 0) return request.copy.run();
  const Runnable& runnable = runnable_for(request);
  const Call call = call_for(request, runnable);
  PlanUse* const use = runnable.use;
  bool compares = true;
  if (!enter(use, compares)) {
    const std::shared_ptr<Pending> pending = queue(request, call, use);
    order.unlock();
    start_waiting();
    pending->work->wait();
    return request.copy.run();
  }
  Comparison comparison = compares ? comparison_for(request, *use) : Comparison{};
  order.unlock();
  try {
    if (compares) {
      job_->engine().run(comparison_call(call, comparison));
      settle(call, *use, comparison);
      compares = false;
      start_waiting();
    }
    job_->engine().run(call);
  } catch (...) {
    leave(compares);
    throw;
  }
  leave(false);
  request.copy.run();  // now, so that no peer has waited for it
}

std::shared_ptr<WorkState> CommunicatorImpl::start(const Request& request) {
  std::unique_lock order(order_mutex_);
  try {
    job_->require_usable(request.name);
    ++sequence_;
    request.copy.run();
    if (size() == 1 || request.elements == 0) {
      auto work = std::make_shared<WorkState>();
      work->finish(std::nullopt);
      return work;
    }
    const Runnable& runnable = runnable_for(request);
    const Call call = call_for(request, runnable);
    bool compares = false;
    if (enter(runnable.use, compares)) {
      order.unlock();
      std::shared_ptr<WorkState> work;
      try {
        work = job_->engine().start(call);
      } catch (...) {
        leave(false);
        throw;
      }
      work->then([self = shared_from_this()](const Error*) { self->leave(false); });
      return work;
    }
    const std::shared_ptr<Pending> pending = queue(request, call, runnable.use);
    order.unlock();
    start_waiting();
    return pending->work;
  } catch (const std::exception& error) {
    auto work = std::make_shared<WorkState>();
    work->finish(as_error(error));
    return work;
  }
}

void CommunicatorImpl::run(const char* name, std::shared_ptr<const PreparedProgram> program, void* data,
                           std::size_t count, DataType type, ReduceOp op) {
  auto* const bytes = static_cast<std::byte*>(data);
  Call call{name, of_calls(settings_.number), 0, count, {bytes, bytes, 0, count}, type,
            op,   std::move(program)};
  {
    const std::lock_guard order(order_mutex_);
    job_->require_usable(name);
    call.sequence = ++sequence_;
  }
  call.deadline = job_->deadline();
  if (size() > 1) job_->engine().run(call);
}

Call CommunicatorImpl::call_for(const Request& request, const Runnable& runnable) const {
  return {
      request.name, of_calls(settings_.number), sequence_,       request.count, request.buffers, request.type,
      request.op,   runnable.program,           job_->deadline()};
}

// Programs.

std::shared_ptr<const PreparedProgram> CommunicatorImpl::prepare(
    topology::Program program, std::size_t count, std::size_t element_bytes, bool mpi_alone,
    std::shared_ptr<const PlanNames> names) const {
  return std::make_shared<const PreparedProgram>(std::move(program), count, element_bytes, settings_.members,
                                                 job_->engine().ways(mpi_alone), std::move(names));
}

const CommunicatorImpl::Runnable& CommunicatorImpl::runnable_for(const Request& request) {
  const Key key{request.collective, request.root, request.elements, request.type};
  if (const auto found = runnables_.find(key); found != runnables_.end()) return found->second;
  try {
    Runnable runnable = made_runnable(request);
    if (runnables_.size() >= most_programs || kept_steps_ >= most_kept_steps) {
      runnables_.clear();
      kept_steps_ = 0;
    }
    kept_steps_ += runnable.steps;
    return runnables_.emplace(key, std::move(runnable)).first->second;
  } catch (...) {
    job_->fail();  // the other ranks may be able to, and wait for this one
    throw;
  }
}

CommunicatorImpl::Runnable CommunicatorImpl::made_runnable(const Request& request) {
  const std::size_t element = size_of(request.type);
  Runnable runnable;
  topology::Program program;
  std::shared_ptr<const PlanNames> names;
  if (request.collective == Collective::barrier) {
    program = topology::lower_barrier(size(), rank());
  } else {
    runnable.use = &plan_use_for(request);
    const ChosenPlan& chosen = *runnable.use->chosen;
    names = chosen.names;
    program = topology::lower(chosen.plan, rank(), request.elements, request.root);
  }
  runnable.steps = program.steps.size();
  runnable.program = prepare(std::move(program), request.elements, element,
                             runnable.use != nullptr && runnable.use->mpi_alone, std::move(names));
  return runnable;
}

CommunicatorImpl::PlanUse& CommunicatorImpl::plan_use_for(const Request& request) {
  const std::uint64_t bytes = request.elements * size_of(request.type);
  std::unique_ptr<PlanUse>& entry = uses_[{request.collective, size_class(bytes), request.type}];
  if (!entry) {
    const auto chosen = settings_.plans->plan(request.collective, bytes, request.type);
    const bool mpi_alone = wants_mpi_alone(chosen->plan) && job_->engine().has_mpi();
    entry = std::make_unique<PlanUse>(PlanUse{chosen, mpi_alone});
  }
  return *entry;
}

// The comparison of plans.

CommunicatorImpl::Comparison CommunicatorImpl::comparison_for(const Request& request,
                                                              const PlanUse& use) const {
  return comparison_of(
      hash_of({static_cast<std::uint64_t>(request.collective), request.elements,
               static_cast<std::uint64_t>(request.root), static_cast<std::uint64_t>(request.type),
               static_cast<std::uint64_t>(request.op), use.chosen->hash}));
}

Call CommunicatorImpl::comparison_call(const Call& call, Comparison& comparison) const {
  auto* const data = reinterpret_cast<std::byte*>(comparison.data());
  Call result = call;
  result.communicator = of_comparisons(settings_.number);
  result.buffers = {data, data, 0, comparison.size()};
  result.type = DataType::i64;
  result.op = ReduceOp::max;
  result.program = comparison_;
  return result;
}

/// After a comparison: throws if the ranks are not alike.
void CommunicatorImpl::settle(const Call& call, PlanUse& use, const Comparison& greatest) {
  if (!are_equal(greatest)) {
    job_->fail();
    throw Error(
        ErrorCode::mismatch,
        fmt::format("{} #{} ({} {}) on rank {}: another rank called something else, or has another plan "
                    "for it. This rank's plan has the hash {:016x}: {}. All ranks must call the same "
                    "collectives with the same counts, types, operations and roots, in the same order, and "
                    "have the same DDL_OPTIONS and DDL_PLAN",
                    call.name, call.sequence, call.count, to_string(call.type), rank(), use.chosen->hash,
                    use.chosen->names->plan));
  }
  std::vector<std::string> notes = use.chosen->plan.notes;
  for (std::string& note : carrier_notes(use.chosen->plan, use.mpi_alone)) notes.push_back(std::move(note));
  job_->tell_of_plan(use.chosen->plan, notes);
  const std::lock_guard flow(flow_mutex_);
  use.agreed = true;
  comparing_ = false;
}

// The order of calls.

/// Whether a call may start now; it counts as under way then. `compares`: whether it may, and then whether it
/// must compare plans first.
bool CommunicatorImpl::enter(const PlanUse* use, bool& compares) {
  const std::lock_guard flow(flow_mutex_);
  const bool must = use != nullptr && !use->agreed;
  if (!waiting_.empty() || comparing_ || under_way_ == most_under_way || (must && !compares)) return false;
  ++under_way_;
  compares = must;
  comparing_ = must;
  return true;
}

void CommunicatorImpl::leave(bool compared) {
  {
    const std::lock_guard flow(flow_mutex_);
    --under_way_;
    if (compared) comparing_ = false;
    if (waiting_.empty()) return;
  }
  start_waiting();
}

std::shared_ptr<CommunicatorImpl::Pending> CommunicatorImpl::queue(const Request& request, const Call& call,
                                                                   PlanUse* use) {
  auto pending = std::make_shared<Pending>();
  pending->call = call;
  pending->use = use;
  if (use != nullptr) pending->comparison = comparison_for(request, *use);
  job_->accepted();
  const std::lock_guard flow(flow_mutex_);
  waiting_.push_back(pending);
  return pending;
}

/// Starts what may start. Calls that end at once come back here: they only leave their mark for the loop.
void CommunicatorImpl::start_waiting() {
  std::unique_lock flow(flow_mutex_);
  if (starting_) return;
  starting_ = true;
  while (!waiting_.empty() && !comparing_ && under_way_ < most_under_way) {
    const std::shared_ptr<Pending> next = std::move(waiting_.front());
    waiting_.pop_front();
    ++under_way_;
    next->compares = next->use != nullptr && !next->use->agreed;
    comparing_ = next->compares;
    flow.unlock();
    begin(next);
    flow.lock();
  }
  starting_ = false;
}

template <typename Next>
void CommunicatorImpl::start_in_engine(const std::shared_ptr<Pending>& pending, const Call& call, Next next) {
  std::shared_ptr<WorkState> started;
  try {
    started = job_->engine().start(call);
  } catch (const std::exception& error) {
    const Error own = as_error(error);
    return finish(pending, &own);
  }
  started->then(
      [self = shared_from_this(), pending, next](const Error* error) { next(*self, pending, error); });
}

void CommunicatorImpl::begin(const std::shared_ptr<Pending>& pending) {
  if (job_->failed()) {
    const Error error(ErrorCode::transport,
                      fmt::format("{} #{}: an earlier collective of this context failed; restart the job",
                                  pending->call.name, pending->call.sequence));
    return finish(pending, &error);
  }
  if (!pending->compares) return begin_call(pending);
  start_in_engine(pending, comparison_call(pending->call, pending->comparison),
                  [](CommunicatorImpl& self, const std::shared_ptr<Pending>& same, const Error* error) {
                    self.compared(same, error);
                  });
}

void CommunicatorImpl::compared(const std::shared_ptr<Pending>& pending, const Error* error) {
  if (error != nullptr) return finish(pending, error);
  try {
    settle(pending->call, *pending->use, pending->comparison);
  } catch (const std::exception& problem) {
    const Error own = as_error(problem);
    return finish(pending, &own);
  }
  pending->compares = false;
  begin_call(pending);
  start_waiting();
}

void CommunicatorImpl::begin_call(const std::shared_ptr<Pending>& pending) {
  start_in_engine(pending, pending->call,
                  [](CommunicatorImpl& self, const std::shared_ptr<Pending>& same, const Error* error) {
                    self.finish(same, error);
                  });
}

void CommunicatorImpl::finish(const std::shared_ptr<Pending>& pending, const Error* error) {
  leave(pending->compares);
  pending->work->finish(error == nullptr ? std::nullopt : std::optional<Error>(*error));
  job_->over();
}

}  // namespace ddl::collectives
