#include "ddl/mpi_interposer/interposer.hpp"

#include <cstdlib>
#include <type_traits>

#include "collectives/executor/waiting.hpp"
#include "collectives/system/fail_agreed.hpp"
#include "ddl/context/bootstrap_mpi.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/mpi_interposer/typed_buffer.hpp"

namespace ddl::mpi {
namespace {

/// Whether the variable has the second of the two values; the first is its default. Throws an agreed error if
/// its value is invalid or differs on any rank. Uses MPI instead of the engine, so that the program's first
/// collective has the engine's first sequence number.
bool read_choice(const char* variable, std::string_view first, std::string_view second) {
  const char* const text = std::getenv(variable);
  const std::string_view value = text == nullptr ? first : text;
  const int own = value == first ? 0 : value == second ? 1 : 2;
  std::array<int, 2> greatest{own, -own};
  PMPI_Allreduce(MPI_IN_PLACE, greatest.data(), 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (greatest[0] == 2) {
    fail_agreed(ErrorCode::invalid_argument,
                "{}: found '{}'{}, expected '{}' or '{}' (libddl_mpi's README.md)", variable, value,
                own == 2 ? "" : " here, and something else on another rank", first, second);
  }
  if (greatest[0] != -greatest[1]) {
    fail_agreed(ErrorCode::mismatch, "{} is not the same on all ranks: set it to the same value", variable);
  }
  return own == 1;
}

bool calls_may_be_concurrent() {
  int level = MPI_THREAD_MULTIPLE;
  PMPI_Query_thread(&level);
  return level == MPI_THREAD_MULTIPLE;
}

}  // namespace

std::atomic<Interposer*> Interposer::current_ = nullptr;
thread_local constinit Interposer::Known Interposer::known_;

void Interposer::start() {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  // MPI's collectives wait as long as it takes: a program may let others wait while one process writes files.
  setenv("DDL_DEADLINE", "1000000000", 0);
  try {
    current_.store(new Interposer, std::memory_order_release);  // deleted by `stop`
  } catch (...) {
    const Error error = as_error(std::current_exception());
    const bool speaks = rank == 0 || !error.agreed();
    if (speaks) {
      Log(rank, 0).error(
          fmt::format("libddl_mpi cannot serve this program, which runs without it: {}", error.what()));
    }
    // With an agreed error rank 0 aborts for all; the others wait for that in a barrier.
    if (speaks) PMPI_Abort(MPI_COMM_WORLD, error.code() == ErrorCode::invalid_argument ? 2 : 1);
    PMPI_Barrier(MPI_COMM_WORLD);
  }
}

void Interposer::stop() { delete current_.exchange(nullptr); }

Interposer::Interposer() : context_(Context::from_environment()), tally_(!calls_may_be_concurrent()) {
  serves_all_ = read_choice("DDL_MPI_SERVE", "faster", "all");
  read_choice("DDL_MPI_MEMORY", "shared", "private");  // for ProgramMemory
  PMPI_Comm_dup(MPI_COMM_SELF, &silent_);
  const auto forgotten = [](MPI_Comm, int, void* value, void*) {
    // `current` is null during MPI_Finalize, when the Interposer and its communicators are gone.
    if (Interposer* const self = current()) self->forget(static_cast<Served*>(value));
    return MPI_SUCCESS;
  };
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forgotten, &attribute_, nullptr);
}

Interposer::~Interposer() {
  tally_.print(context_.log());
  PMPI_Comm_free_keyval(&attribute_);
  PMPI_Comm_free(&silent_);
}

void Interposer::drive_mpi() {
  const Interposer* const self = current();
  if (self == nullptr) return;
  int found = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, self->silent_, &found, MPI_STATUS_IGNORE);
}

const Interposer::Known& Interposer::find(MPI_Comm communicator, MPI_Datatype type) {
  const std::uint64_t forgotten = forgotten_.load(std::memory_order_acquire);
  if (known_.served == nullptr || communicator != known_.communicator || forgotten != known_.forgotten) {
    const Served* served = attached(communicator);
    if (served == nullptr) served = open(communicator);
    const auto ranks = served->communicator ? as_index(served->communicator->size()) : 1;
    known_ = {.communicator = communicator, .forgotten = forgotten, .served = served, .ranks = ranks};
  }
  if (type != known_.type) {
    known_.element_bytes = plain_bytes(type);
    known_.type = type;
  }
  return known_;
}

Interposer::Served* Interposer::attached(MPI_Comm communicator) const {
  void* value = nullptr;
  int found = 0;
  PMPI_Comm_get_attr(communicator, attribute_, &value, &found);
  return found != 0 ? static_cast<Served*>(value) : nullptr;
}

Interposer::Served* Interposer::open(MPI_Comm communicator) {
  const collectives::Meanwhile meanwhile(&drive_mpi);
  Served made = make(communicator);
  const std::lock_guard lock(mutex_);
  Served& added = served_.emplace_back(std::move(made));
  if (const int code = PMPI_Comm_set_attr(communicator, attribute_, &added); code != MPI_SUCCESS) {
    served_.pop_back();
    throw Error(ErrorCode::transport, fmt::format("MPI_Comm_set_attr returned {}", code));
  }
  return &added;
}

/// The result is the same on all ranks of the communicator.
Interposer::Served Interposer::make(MPI_Comm communicator) {
  std::shared_ptr<collectives::CommunicatorImpl> engine = engine_of(communicator);
  if (!engine) return {nullptr, ServedSizes::all()};
  const ServedSizes sizes = serves_all_ ? ServedSizes::all() : sizes_of(*engine, communicator);
  return {std::move(engine), sizes};
}

/// Null if the communicator's calls are left to MPI.
std::shared_ptr<collectives::CommunicatorImpl> Interposer::engine_of(MPI_Comm communicator) {
  int between = 0;
  int size = 0;
  PMPI_Comm_test_inter(communicator, &between);
  PMPI_Comm_size(communicator, &size);
  if (between != 0 || size == 1) return nullptr;
  collectives::CommunicatorImpl& world = communicator_of(context_);
  if (communicator == MPI_COMM_WORLD) return world.shared_from_this();
  try {
    return subgroup_of(world, communicator);
  } catch (const Error& error) {
    if (!error.agreed()) throw;
    context_.log().warning(fmt::format("a communicator's collectives are left to MPI: {}", error.what()));
    return nullptr;
  }
}

/// What rank 0 has for communicators whose ranks are placed alike, measured if it has nothing.
ServedSizes Interposer::sizes_of(collectives::CommunicatorImpl& engine, MPI_Comm communicator) {
  std::vector<int> hosts;
  for (int rank = 0; rank < engine.size(); ++rank) hosts.push_back(engine.rank_map().host_of(rank));
  struct Known {
    ServedSizes sizes;
    bool is_known = false;
  } known;
  static_assert(std::is_trivially_copyable_v<Known>);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = measured_.find(hosts); found != measured_.end()) known = {found->second, true};
  }
  // Other ranks may have measured with others, and found something else.
  PMPI_Bcast(&known, sizeof known, MPI_BYTE, 0, communicator);
  if (!known.is_known) known.sizes = ServedSizes::measured(engine, communicator, context_);
  const std::lock_guard lock(mutex_);
  return measured_[std::move(hosts)] = known.sizes;
}

void Interposer::forget(const Served* served) {
  forgotten_.fetch_add(1, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  std::erase_if(served_, [&](const Served& each) { return &each == served; });
}

void* Interposer::allocate(std::size_t bytes) {
  try {
    SharedBuffer<std::byte> buffer = allocate_bytes(context_, bytes);
    void* const data = buffer.data();
    const std::lock_guard lock(mutex_);
    allocated_.emplace(data, std::move(buffer));
    return data;
  } catch (const Error&) {
    return nullptr;
  }
}

bool Interposer::release(void* data) {
  const std::lock_guard lock(mutex_);
  return allocated_.erase(data) != 0;
}

/// Returns what the communicator's error handler gets: a code of MPI_ERR_OTHER, so that the program adds the
/// same error classes as without the library. Reports only the first error, because later ones follow from
/// it.
int Interposer::failed(MPI_Comm communicator, const Error& error) {
  int code = MPI_ERR_OTHER;
  if (Interposer* const self = current()) {
    if (!self->has_reported_.exchange(true)) self->context_.report(error);
    if (PMPI_Add_error_code(MPI_ERR_OTHER, &code) == MPI_SUCCESS) {
      std::string text = error.what();
      text = text.substr(0, std::min<std::size_t>(text.find('\n'), MPI_MAX_ERROR_STRING - 1));
      PMPI_Add_error_string(code, text.c_str());
    } else {
      code = MPI_ERR_OTHER;
    }
  }
  PMPI_Comm_call_errhandler(communicator, code);
  return code;
}

}  // namespace ddl::mpi
