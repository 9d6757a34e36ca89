#include "collectives/communicator/communicator_impl.hpp"

#include <initializer_list>

#include "collectives/kernels/reduce.hpp"
#include "ddl/hash.hpp"

namespace ddl::collectives {

namespace {

// Limits for cached programs. The cache is emptied when it reaches one.
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

std::shared_ptr<WorkState> over(std::optional<Error> error) {
  auto work = std::make_shared<WorkState>();
  work->finish(std::move(error));
  return work;
}

}  // namespace

/// A call that waits for other calls, and then for its comparison if it needs one.
struct CommunicatorImpl::Pending {
  Call call;
  Agreed* agreed;  // null if there is no plan
  Comparison comparison;
  std::shared_ptr<WorkState> work;
};

CommunicatorImpl::CommunicatorImpl(std::shared_ptr<Job> job, CommunicatorSettings settings)
    : job_(std::move(job)), settings_(std::move(settings)) {
  if (size() == 1) return;
  const auto plan =
      std::make_shared<const ChosenPlan>(ChosenPlan{"the comparison of plans before the first use"});
  comparison_ = prepare(topology::lower_barrier(size(), rank(), Comparison().size()), Comparison().size(),
                        sizeof(Comparison::value_type), plan);
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

/// Calls in flight hold a reference, so there are none.
CommunicatorImpl::~CommunicatorImpl() {
  if (settings_.number != 0) job_->give_back_number(settings_.number);
}

// Calls.

void CommunicatorImpl::run(const Request& request) {
  std::unique_lock order(order_mutex_);
  Call call = next_call(request);
  if (is_trivial(request)) return run_trivial(request, call);
  if (reproducible_ && ReproducibleReductions::concerns(request)) {
    call.enter(job_->engine().recorder());
    const auto reduction = reproducible_->accept(request, call, fingerprint_of(request));
    order.unlock();
    return reproducible_->run(reduction);
  }
  Agreed* const agreed = add_program(call, request);
  if (may_start(agreed)) {
    order.unlock();
    return job_->engine().run(std::move(call));
  }
  call.enter(job_->engine().recorder());
  Comparison comparison = comparison_for(request, call);
  if (!begin_comparison(agreed)) {
    const std::shared_ptr<WorkState> work = queue(call, agreed, comparison);
    order.unlock();
    start_waiting();
    return work->wait();
  }
  order.unlock();
  try {
    job_->engine().run(comparison_call(call, comparison));
    settle(call, *agreed, comparison);
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
  return program_for(request).program->program().residual;
}

std::shared_ptr<WorkState> CommunicatorImpl::start(const Request& request) {
  try {
    std::unique_lock order(order_mutex_);
    Call call = next_call(request);
    if (is_trivial(request)) {
      run_trivial(request, call);
      return over(std::nullopt);
    }
    if (reproducible_ && ReproducibleReductions::concerns(request)) {
      call.enter(job_->engine().recorder());
      const auto reduction = reproducible_->accept(request, call, fingerprint_of(request));
      order.unlock();
      return reproducible_->start(reduction);
    }
    Agreed* const agreed = add_program(call, request);
    if (may_start(agreed)) {
      order.unlock();
      auto work = job_->engine().start(call);
      work->keep(shared_from_this());
      return work;
    }
    call.enter(job_->engine().recorder());
    auto work = queue(call, agreed, comparison_for(request, call));
    order.unlock();
    start_waiting();
    return work;
  } catch (const std::exception& error) {
    return over(as_error(error));
  }
}

void CommunicatorImpl::run(const CallName& name, std::shared_ptr<const PreparedProgram> program, void* data,
                           std::size_t count, DataType type, ReduceOp op) {
  auto* const bytes = static_cast<std::byte*>(data);
  const Request request{
      .name = name, .count = count, .type = type, .op = op, .buffers = {bytes, bytes, 0, count}};
  std::unique_lock order(order_mutex_);
  Call call = next_call(request);
  order.unlock();
  call.program = std::move(program);
  if (call.program && size() > 1) return job_->engine().run(std::move(call));
  call.enter(job_->engine().recorder());
  job_->engine().recorder().over(call.record, false);
}

void CommunicatorImpl::run_trivial(const Request& request, Call& call) const {
  call.enter(job_->engine().recorder());
  const Buffers& buffers = request.buffers;  // of a single rank, or without elements
  const std::size_t bytes = request.count * size_of(request.type);
  if (buffers.output != nullptr && buffers.output != buffers.input && size() == 1 && bytes != 0) {
    copy_bytes(buffers.output, buffers.input, bytes);
  }
  job_->engine().recorder().over(call.record, false);
}

CallId CommunicatorImpl::id_of(const Request& request) const {
  if (request.part_of) return request.part_of->id;
  return {.name = request.name,
          .communicator = static_cast<std::uint16_t>(settings_.number),
          .sequence = sequence_,
          .count = request.count,
          .type = request.type,
          .op = request.op,
          .root = has_root(request.collective) ? request.root : -1,
          .purpose = CallsFor::now()};
}

/// Numbers the call, without its program. The engine records it; stages of a reproducible reduction are not
/// recorded.
Call CommunicatorImpl::next_call(const Request& request) {
  job_->require_usable(request.name);
  ++sequence_;
  Call call{.id = id_of(request),
            .communicator = static_cast<std::uint16_t>(settings_.number),
            .sequence = sequence_,
            .buffers = request.buffers,
            .residual = request.residual,
            .type = request.type,
            .op = request.op,
            .record = request.part_of ? 0 : Call::unrecorded,
            .deadline = job_->deadline()};
  return call;
}

/// The fingerprint identifies the call. Most of it was hashed when the program was prepared, which keeps
/// small calls fast.
CommunicatorImpl::Agreed* CommunicatorImpl::add_program(Call& call, const Request& request) {
  const CachedProgram& cached = program_for(request);
  call.program = cached.program;
  call.fingerprint = with_op(cached.fingerprint, call.op);
  if (request.part_of) call.fingerprint ^= request.part_of->fingerprint;
  // The library's calls must not meet calls of the trainer with the same arguments.
  call.fingerprint ^= static_cast<std::uint32_t>(call.id.purpose) << 24U;
  return cached.agreed;
}

// Programs.

std::shared_ptr<const PreparedProgram> CommunicatorImpl::prepare(
    topology::Program program, std::size_t count, std::size_t element_bytes,
    std::shared_ptr<const ChosenPlan> plan) const {
  const bool mpi_alone = plan && topology::is_by_mpi_alone(plan->plan) && job_->engine().has_mpi();
  return std::make_shared<const PreparedProgram>(std::move(program), count, element_bytes, settings_.members,
                                                 job_->engine().ways(mpi_alone), std::move(plan));
}

CommunicatorImpl::Key::Key(const Request& request) noexcept
    : elements(request.elements),
      rest(static_cast<std::uint64_t>(request.root) << 24 |
           static_cast<std::uint64_t>(request.collective) << 16 |
           static_cast<std::uint64_t>(request.type) << 8 |
           static_cast<std::uint64_t>(request.wire.value_or(request.type))) {}

const CommunicatorImpl::CachedProgram& CommunicatorImpl::program_for(const Request& request) {
  const Key key(request);
  auto*& recent = recent_[key.slot(recent_.size())];
  if (recent != nullptr && recent->first == key) return recent->second;
  if (const auto found = programs_.find(key); found != programs_.end()) {
    recent = &*found;
    return recent->second;
  }
  try {
    CachedProgram made = prepare(request);
    if (programs_.size() >= most_programs || kept_steps_ >= most_kept_steps) {
      programs_.clear();
      recent_.fill(nullptr);
      kept_steps_ = 0;
    }
    kept_steps_ += made.program->steps().size();
    recent = &*programs_.emplace(key, std::move(made)).first;
    return recent->second;
  } catch (const std::exception& problem) {
    // The other ranks may succeed, and would wait for this one.
    if (!request.part_of) job_->engine().recorder().called(id_of(request));
    throw Error(job_->give_up(id_of(request), rank(), problem));
  }
}

CommunicatorImpl::CachedProgram CommunicatorImpl::prepare(const Request& request) {
  const std::size_t element = size_of(request.type);
  CachedProgram made;
  made.fingerprint = fingerprint_without_op(request);
  if (request.collective == topology::Collective::barrier) {
    made.program = prepare(topology::lower_barrier(size(), rank()), request.elements, element);
    return made;
  }
  auto chosen =
      settings_.plans->plan(request.collective, request.elements * element, request.type, request.wire);
  made.agreed = &agreed_[chosen];
  topology::Program program = topology::lower(chosen->plan, rank(), request.elements, request.root);
  made.program = prepare(std::move(program), request.elements, element, std::move(chosen));
  return made;
}

// The comparison of plans.

/// Zeros for a call without a plan, which is not compared.
CommunicatorImpl::Comparison CommunicatorImpl::comparison_for(const Request& request, const Call& call) {
  if (!call.program->plan()) return {};
  return comparison_of(hash_of({fingerprint_of(request), call.program->plan()->hash}));
}

Call CommunicatorImpl::comparison_call(const Call& call, Comparison& comparison) const {
  auto* const data = reinterpret_cast<std::byte*>(comparison.data());
  Call result = call;
  result.compares = true;
  result.fingerprint = 0;  // the comparison itself finds differences
  result.buffers = {data, data, 0, comparison.size()};
  result.type = DataType::i64;
  result.op = ReduceOp::max;
  result.program = comparison_;
  return result;
}

/// Evaluates a comparison: throws if the ranks differ.
void CommunicatorImpl::settle(const Call& call, Agreed& agreed, const Comparison& greatest) {
  const ChosenPlan& chosen = *call.program->plan();
  if (!are_equal(greatest)) {
    throw Error(job_->engine().give_up(
        Error(ErrorCode::mismatch,
              fmt::format("{} on rank {}: another rank called something else, or has another plan "
                          "for it. This rank's plan has the hash {:016x}: {}. All ranks must call the same "
                          "collectives with the same counts, types, operations and roots, in the same order, "
                          "and have the same DDL_OPTIONS and DDL_PLAN",
                          call.id.describe(), rank(), chosen.hash, chosen.text)),
        call.id));
  }
  std::vector<std::string> notes = chosen.plan.notes;
  for (std::string& note : carrier_notes(chosen.plan, call.program->mpi_alone())) {
    notes.push_back(std::move(note));
  }
  job_->tell_of_plan(chosen.plan, notes);
  agreed = true;
}

// The order of calls.

/// Whether a call may start now with a comparison. If so, the comparison has begun.
bool CommunicatorImpl::begin_comparison(const Agreed* agreed) {
  const std::lock_guard flow(flow_mutex_);
  if (makes_wait_ || agreed == nullptr || *agreed) return false;
  comparing_ = true;
  makes_wait_ = true;
  return true;
}

void CommunicatorImpl::end_comparison() {
  {
    const std::lock_guard flow(flow_mutex_);
    comparing_ = false;
  }
  start_waiting();
}

std::shared_ptr<WorkState> CommunicatorImpl::queue(const Call& call, Agreed* agreed,
                                                   const Comparison& comparison) {
  auto pending = std::make_shared<Pending>(Pending{call, agreed, comparison, job_->open_work()});
  const std::lock_guard flow(flow_mutex_);
  waiting_.push_back(pending);
  makes_wait_ = true;
  return pending->work;
}

/// Starts waiting calls. A call that completes at once re-enters this function and leaves the rest to the
/// outer loop.
void CommunicatorImpl::start_waiting() {
  std::unique_lock flow(flow_mutex_);
  if (starting_) return;
  starting_ = true;
  while (!waiting_.empty() && !comparing_) {
    const std::shared_ptr<Pending> next = std::move(waiting_.front());
    waiting_.pop_front();
    comparing_ = next->agreed != nullptr && !*next->agreed;
    const bool compares = comparing_;
    flow.unlock();
    begin(next, compares);
    flow.lock();
  }
  makes_wait_ = comparing_;
  starting_ = false;
}

void CommunicatorImpl::begin(const std::shared_ptr<Pending>& pending, bool compares) {
  if (!compares) return begin_call(pending);
  start_in_engine(
      comparison_call(pending->call, pending->comparison),
      [self = shared_from_this(), pending](const Error* error) { self->compared(pending, error); });
}

void CommunicatorImpl::compared(const std::shared_ptr<Pending>& pending, const Error* error) {
  try {
    if (error != nullptr) throw Error(*error);
    settle(pending->call, *pending->agreed, pending->comparison);
    begin_call(pending);
  } catch (const std::exception& problem) {
    job_->finish(pending->work, as_error(problem));
  }
  end_comparison();
}

void CommunicatorImpl::begin_call(const std::shared_ptr<Pending>& pending) {
  start_in_engine(pending->call, [self = shared_from_this(), pending](const Error* error) {
    self->job_->finish(pending->work, error == nullptr ? std::nullopt : std::optional(*error));
  });
}

/// `over` is called when the call is complete or cannot be made.
void CommunicatorImpl::start_in_engine(const Call& call, const WorkState::Continuation& over) {
  try {
    if (job_->failed()) throw Error(job_->engine().failed_before(call.id.name));
    job_->engine().start(call)->then(over);
  } catch (const std::exception& problem) {
    const Error error = as_error(problem);
    over(&error);
  }
}

}  // namespace ddl::collectives
