#include "collectives/communicator/communicator_impl.hpp"

#include <fmt/format.h>

#include <initializer_list>
#include <optional>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/hash.hpp"
#include "ddl/topology/program.hpp"

namespace ddl::collectives {

using topology::Collective;

namespace {

// Programs of earlier calls are kept up to these limits; a job that needs more starts over.
constexpr std::size_t most_programs = 512;
constexpr std::size_t most_kept_steps = std::size_t{1} << 20;

std::uint64_t hash_of(std::initializer_list<std::uint64_t> parts) {
  Fnv fnv;
  for (const std::uint64_t part : parts) fnv.add_number(part);
  return fnv.value();
}

std::uint32_t fingerprint_without_op(const Request& request) {
  return static_cast<std::uint32_t>(
      hash_of({static_cast<std::uint64_t>(request.collective), request.elements,
               static_cast<std::uint64_t>(request.root), static_cast<std::uint64_t>(request.type),
               static_cast<std::uint64_t>(request.wire.value_or(request.type))}));
}
std::uint32_t with_op(std::uint32_t fingerprint, ReduceOp op) {
  constexpr std::uint32_t golden_ratio = 0x9e3779b9;
  return fingerprint ^ (static_cast<std::uint32_t>(op) + 1) * golden_ratio;
}
std::uint32_t fingerprint_of(const Request& request) {
  return with_op(fingerprint_without_op(request), request.op);
}

Error as_error(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return *own;
  return {ErrorCode::internal, error.what()};
}

std::shared_ptr<WorkState> over(std::optional<Error> error) {
  auto work = std::make_shared<WorkState>();
  work->finish(std::move(error));
  return work;
}

}  // namespace

/// A call that is made in parts, by different threads.
struct CommunicatorImpl::Pending {
  Call call;
  PlanUse* use = nullptr;
  Comparison comparison{};
  std::shared_ptr<WorkState> call_in_engine = nullptr;  // under flow_mutex_
  std::shared_ptr<WorkState> work = nullptr;
};

CommunicatorImpl::CommunicatorImpl(std::shared_ptr<Job> job, CommunicatorSettings settings)
    : job_(std::move(job)), settings_(std::move(settings)) {
  if (size() == 1) return;
  const auto names =
      std::make_shared<const PlanNames>(PlanNames{"the comparison of plans before the first use", {}});
  comparison_ = prepare(topology::lower_barrier(size(), rank(), Comparison().size()), Comparison().size(),
                        sizeof(Comparison::value_type), names);
  if (!settings_.lanes.empty()) open_lanes();
}

void CommunicatorImpl::open_lanes() {
  ReproducibleReductions::Lanes lanes;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    CommunicatorSettings settings = settings_;
    settings.number = settings_.lanes.at(i);
    settings.lanes.clear();
    lanes[i] = std::make_shared<CommunicatorImpl>(job_, std::move(settings));
  }
  reproducible_ = std::make_shared<ReproducibleReductions>(job_, std::move(lanes));
}

/// Calls under way have kept it until now.
CommunicatorImpl::~CommunicatorImpl() {
  if (settings_.number != 0) job_->give_back_number(settings_.number);
}

// Calls.

void CommunicatorImpl::run(const Request& request) {
  std::unique_lock order(order_mutex_);
  job_->require_usable(request.name);
  ++sequence_;
  Call call = call_for(request);
  note(call, request);
  if (is_trivial(request)) return run_trivial(request, call);
  if (reproducible_ && ReproducibleReductions::concerns(request)) {
    const auto reduction = reproducible_->accept(request, call, fingerprint_of(request));
    order.unlock();
    return reproducible_->run(reduction);
  }
  const Runnable& runnable = runnable_for(request);
  complete(call, runnable, request);
  PlanUse* const use = runnable.use;
  if (may_start(use)) {
    order.unlock();
    return job_->engine().run(std::move(call));
  }
  Comparison comparison = use != nullptr ? comparison_for(request, *use) : Comparison{};
  if (!begin_comparison(use)) {
    const std::shared_ptr<Pending> pending = queue(call, use, comparison);
    order.unlock();
    start_waiting();
    return pending->work->wait();
  }
  order.unlock();
  try {
    job_->engine().run(comparison_call(call, comparison));
    settle(call, *use, comparison);
  } catch (...) {
    end_comparison();
    throw;
  }
  end_comparison();
  job_->engine().run(std::move(call));
}

std::size_t CommunicatorImpl::residual_size(const Request& request) {
  if (is_trivial(request) || reproducible_) return 0;
  const std::lock_guard order(order_mutex_);
  return runnable_for(request).program->program().residual;
}

std::shared_ptr<WorkState> CommunicatorImpl::start(const Request& request) {
  try {
    std::unique_lock order(order_mutex_);
    job_->require_usable(request.name);
    ++sequence_;
    Call call = call_for(request);
    note(call, request);
    if (is_trivial(request)) {
      run_trivial(request, call);
      return over(std::nullopt);
    }
    if (reproducible_ && ReproducibleReductions::concerns(request)) {
      const auto reduction = reproducible_->accept(request, call, fingerprint_of(request));
      order.unlock();
      return reproducible_->start(reduction);
    }
    const Runnable& runnable = runnable_for(request);
    complete(call, runnable, request);
    if (may_start(runnable.use)) {
      order.unlock();
      auto work = job_->engine().start(call);
      work->keep(shared_from_this());
      return work;
    }
    const Comparison comparison =
        runnable.use != nullptr ? comparison_for(request, *runnable.use) : Comparison{};
    const std::shared_ptr<Pending> pending = queue(call, runnable.use, comparison);
    order.unlock();
    start_waiting();
    return pending->work;
  } catch (const std::exception& error) {
    return over(as_error(error));
  }
}

void CommunicatorImpl::run(const char* name, std::shared_ptr<const PreparedProgram> program, void* data,
                           std::size_t count, DataType type, ReduceOp op) {
  auto* const bytes = static_cast<std::byte*>(data);
  const auto communicator = static_cast<std::uint16_t>(settings_.number);
  Call call{.called = {name, communicator, 0, count, type, op},
            .communicator = communicator,
            .buffers = {bytes, bytes, 0, count},
            .type = type,
            .op = op,
            .program = std::move(program),
            .deadline = job_->deadline()};
  {
    const std::lock_guard order(order_mutex_);
    job_->require_usable(name);
    call.sequence = call.called.sequence = ++sequence_;
  }
  call.record = job_->engine().recorder().called(call.called);
  if (call.program && size() > 1) return job_->engine().run(std::move(call));
  job_->engine().recorder().over(call.record, false);
}

bool CommunicatorImpl::is_trivial(const Request& request) const noexcept {
  return size() == 1 || request.elements == 0;
}

void CommunicatorImpl::run_trivial(const Request& request, const Call& call) const {
  request.copy.run();
  job_->engine().recorder().over(call.record, false);
}

/// A hash of what is called, most of which has been hashed before: small calls take less than that would.
void CommunicatorImpl::complete(Call& call, const Runnable& runnable, const Request& request) {
  call.program = runnable.program;
  call.fingerprint = with_op(runnable.fingerprint, call.op);
  if (request.part_of) call.fingerprint ^= request.part_of->fingerprint;
}

/// In the flight recorder. Of what is done in parts, the whole is there.
void CommunicatorImpl::note(Call& call, const Request& request) const {
  if (!request.part_of) call.record = job_->engine().recorder().called(call.called);
}

/// Without what `complete` adds.
Call CommunicatorImpl::call_for(const Request& request) const {
  const auto communicator = static_cast<std::uint16_t>(settings_.number);
  const Called called = {request.name,
                         communicator,
                         sequence_,
                         request.count,
                         request.type,
                         request.op,
                         has_root(request.collective) ? request.root : -1};
  return {.called = request.part_of ? request.part_of->called : called,
          .communicator = communicator,
          .sequence = sequence_,
          .buffers = request.buffers,
          .residual = request.residual,
          .type = request.type,
          .op = request.op,
          .deadline = job_->deadline()};
}

void CommunicatorImpl::require_unfailed(const Call& call) const {
  if (!job_->failed()) return;
  throw Error(ErrorCode::transport,
              fmt::format("{} #{}: an earlier collective of this context failed; restart the job",
                          call.called.name, call.called.sequence));
}

// Programs.

std::shared_ptr<const PreparedProgram> CommunicatorImpl::prepare(
    topology::Program program, std::size_t count, std::size_t element_bytes,
    std::shared_ptr<const PlanNames> names) const {
  return std::make_shared<const PreparedProgram>(std::move(program), count, element_bytes, settings_.members,
                                                 job_->engine().ways(false), std::move(names));
}

std::size_t CommunicatorImpl::Key::slot(std::size_t slots) const noexcept {
  constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15;  // Fibonacci hashing: Knuth, vol. 3, 6.4
  const std::uint64_t rest = (static_cast<std::uint64_t>(root + 1) << 16) |
                             (static_cast<std::uint64_t>(collective) << 8) | static_cast<std::uint64_t>(type);
  return ((elements + rest * golden_ratio) * golden_ratio >> 32) % slots;
}

const CommunicatorImpl::Runnable& CommunicatorImpl::runnable_for(const Request& request) {
  const Key key{request.collective, request.root, request.elements, request.type, request.wire};
  auto*& recent = recent_[key.slot(recent_.size())];
  if (recent != nullptr && recent->first == key) return recent->second;
  if (const auto found = runnables_.find(key); found != runnables_.end()) {
    recent = &*found;
    return recent->second;
  }
  try {
    Runnable runnable = made_runnable(request);
    if (runnables_.size() >= most_programs || kept_steps_ >= most_kept_steps) {
      runnables_.clear();
      recent_.fill(nullptr);
      kept_steps_ = 0;
    }
    kept_steps_ += runnable.steps;
    recent = &*runnables_.emplace(key, std::move(runnable)).first;
    return recent->second;
  } catch (const std::exception& problem) {
    // The other ranks may be able to, and wait for this one.
    const Error error = as_error(problem);
    const Called called = call_for(request).called;
    throw Error(job_->engine().give_up(
        Error(error.code(),
              fmt::format("{} #{} on rank {}: {}", called.name, called.sequence, rank(), error.what())),
        called.communicator, called.sequence));
  }
}

CommunicatorImpl::Runnable CommunicatorImpl::made_runnable(const Request& request) {
  const std::size_t element = size_of(request.type);
  Runnable runnable;
  runnable.fingerprint = fingerprint_without_op(request);
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
  const bool mpi_alone = runnable.use != nullptr && runnable.use->mpi_alone;
  runnable.steps = program.steps.size();
  runnable.program = std::make_shared<const PreparedProgram>(
      std::move(program), request.elements, element, settings_.members, job_->engine().ways(mpi_alone),
      std::move(names));
  return runnable;
}

CommunicatorImpl::PlanUse& CommunicatorImpl::plan_use_for(const Request& request) {
  const std::uint64_t bytes = request.elements * size_of(request.type);
  std::unique_ptr<PlanUse>& entry =
      uses_[{request.collective, size_class(bytes), request.type, request.wire}];
  if (!entry) {
    const auto chosen = settings_.plans->plan(request.collective, bytes, request.type, request.wire);
    const bool mpi_alone = topology::is_by_mpi_alone(chosen->plan) && job_->engine().has_mpi();
    entry = std::make_unique<PlanUse>(chosen, mpi_alone);
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
  result.compares = true;
  result.fingerprint = 0;  // the comparison is to say what differs
  result.buffers = {data, data, 0, comparison.size()};
  result.type = DataType::i64;
  result.op = ReduceOp::max;
  result.program = comparison_;
  return result;
}

/// After a comparison: throws if the ranks are not alike.
void CommunicatorImpl::settle(const Call& call, PlanUse& use, const Comparison& greatest) {
  if (!are_equal(greatest)) {
    throw Error(job_->engine().give_up(
        Error(ErrorCode::mismatch,
              fmt::format("{} on rank {}: another rank called something else, or has another plan "
                          "for it. This rank's plan has the hash {:016x}: {}. All ranks must call the same "
                          "collectives with the same counts, types, operations and roots, in the same order, "
                          "and have the same DDL_OPTIONS and DDL_PLAN",
                          record_of(call.called).describe(), rank(), use.chosen->hash,
                          use.chosen->names->plan)),
        call.called.communicator, call.called.sequence));
  }
  std::vector<std::string> notes = use.chosen->plan.notes;
  for (std::string& note : carrier_notes(use.chosen->plan, use.mpi_alone)) notes.push_back(std::move(note));
  job_->tell_of_plan(use.chosen->plan, notes);
  use.agreed = true;
}

// The order of calls.

/// Whether a call may start now, and without a comparison. With order_mutex_.
bool CommunicatorImpl::may_start(const PlanUse* use) const noexcept {
  return !makes_wait_.load(std::memory_order_acquire) &&
         (use == nullptr || use->agreed.load(std::memory_order_acquire));
}

/// Whether a call may start now with a comparison, which has begun then.
bool CommunicatorImpl::begin_comparison(const PlanUse* use) {
  const std::lock_guard flow(flow_mutex_);
  if (makes_wait_ || use == nullptr || use->agreed) return false;
  comparing_ = true;
  makes_wait_ = true;
  return true;
}

void CommunicatorImpl::end_comparison() {
  {
    const std::lock_guard flow(flow_mutex_);
    comparing_ = false;
    comparison_in_engine_.reset();
  }
  start_waiting();
}

std::shared_ptr<CommunicatorImpl::Pending> CommunicatorImpl::queue(const Call& call, PlanUse* use,
                                                                   const Comparison& comparison) {
  auto pending = std::make_shared<Pending>(Pending{call, use, comparison});
  WorkState::Help help;
  if (!job_->engine().has_thread()) {
    help = [self = weak_from_this(), wanted = std::weak_ptr(pending)](const WorkState& work,
                                                                      bool until_done) {
      if (const auto communicator = self.lock()) communicator->help(wanted, work, until_done);
    };
  }
  // Who helps waits for the parts, which are counted.
  const std::shared_ptr<RunRecorder> run = help ? nullptr : job_->engine().run_recorder();
  pending->work = std::make_shared<WorkState>(std::move(help), run);
  job_->accepted(pending->work);
  const std::lock_guard flow(flow_mutex_);
  waiting_.push_back(pending);
  makes_wait_ = true;
  return pending;
}

/// Starts what may start. Calls that end at once come back here: they leave it to the loop.
void CommunicatorImpl::start_waiting() {
  std::unique_lock flow(flow_mutex_);
  if (starting_) return;
  starting_ = true;
  while (!waiting_.empty() && !comparing_) {
    const std::shared_ptr<Pending> next = std::move(waiting_.front());
    waiting_.pop_front();
    const bool compares = next->use != nullptr && !next->use->agreed;
    comparing_ = compares;
    flow.unlock();
    begin(next, compares);
    flow.lock();
  }
  makes_wait_ = comparing_;
  starting_ = false;
}

void CommunicatorImpl::begin(const std::shared_ptr<Pending>& pending, bool compares) {
  if (!compares) return begin_call(pending);
  try {
    require_unfailed(pending->call);
    const auto started = job_->engine().start(comparison_call(pending->call, pending->comparison));
    {
      const std::lock_guard flow(flow_mutex_);
      comparison_in_engine_ = started;
    }
    started->then(
        [self = shared_from_this(), pending](const Error* error) { self->compared(pending, error); });
  } catch (const std::exception& problem) {
    const Error error = as_error(problem);
    compared(pending, &error);
  }
}

void CommunicatorImpl::compared(const std::shared_ptr<Pending>& pending, const Error* error) {
  try {
    if (error != nullptr) throw Error(*error);
    settle(pending->call, *pending->use, pending->comparison);
    begin_call(pending);
  } catch (const std::exception& problem) {
    finish(*pending, as_error(problem));
  }
  end_comparison();
}

void CommunicatorImpl::begin_call(const std::shared_ptr<Pending>& pending) {
  try {
    require_unfailed(pending->call);
    const auto started = job_->engine().start(pending->call);
    {
      const std::lock_guard flow(flow_mutex_);
      pending->call_in_engine = started;
    }
    started->then([self = shared_from_this(), pending](const Error* error) {
      self->finish(*pending, error == nullptr ? std::nullopt : std::optional<Error>(*error));
    });
  } catch (const std::exception& problem) {
    finish(*pending, as_error(problem));
  }
}

void CommunicatorImpl::finish(const Pending& pending, std::optional<Error> error) {
  pending.work->finish(std::move(error));
  job_->over(pending.work);
}

void CommunicatorImpl::help(const std::weak_ptr<Pending>& wanted, const WorkState& work, bool until_done) {
  help_with_parts(work, until_done, [&] {
    const std::lock_guard flow(flow_mutex_);
    const std::shared_ptr<Pending> pending = wanted.lock();
    return pending && pending->call_in_engine ? pending->call_in_engine : comparison_in_engine_;
  });
}

}  // namespace ddl::collectives
