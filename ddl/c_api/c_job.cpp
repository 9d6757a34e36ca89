#include "ddl/c_api/c_job.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "ddl/context/context_state.hpp"
#include "ddl/gradients/reducer.hpp"
#include "ddl/log.hpp"

namespace ddl::c_api {
namespace {

thread_local std::string last_message;

constexpr int types = 7;
constexpr int ops = 5;

/// Begins messages of C++ programs; a C function's name takes its place.
std::string_view without_class(std::string_view text) {
  return text.starts_with(ReducerAccess::prefix) ? text.substr(ReducerAccess::prefix.size()) : text;
}

/// Takes "-errors abort" or "-errors return" out of the options of ddl_init; the others are the context's.
bool take_errors_option(std::string& options) {
  std::istringstream words(options);
  std::string rest;
  bool aborts = false;
  for (std::string word; words >> word;) {
    if (word != "-errors") {
      rest += rest.empty() ? word : " " + word;
      continue;
    }
    std::string value;
    words >> value;
    if (value != "abort" && value != "return") {
      refuse("-errors in options: found '{}', expected abort or return", value);
    }
    aborts = value == "abort";
  }
  options = rest;
  return aborts;
}

[[noreturn]] void refuse_foreign_handle() { refuse("the handle is none of this job's, or has been freed"); }

}  // namespace

Job& Job::of_process() {
  static Job* const own = new Job;
  return *own;
}

void Job::start(const char* options, const void* communicator) {
  if (context_ || has_ended_) {
    throw Error(ErrorCode::invalid_argument,
                has_ended_ ? "the job has ended (ddl_finalize); a process can join one only once"
                           : "the job has begun; found a second call, expected one");
  }
  options_ = options == nullptr ? "" : options;
  std::string flags = options_;
  errors_end_the_program_ = take_errors_option(flags);
  const ContextOptions given = ContextOptions::from_environment(flags, "options");
  context_.emplace(communicator == nullptr ? Context::from_environment(given)
                                           : Context::from_mpi(communicator, given));
  std::atexit([] {  // peers may be waiting for this rank's ddl_finalize
    Job& job = Job::of_process();
    if (!job.context_ || job.has_failed_) return;
    job.context().log().error("the program ends without ddl_finalize: call it on all ranks");
  });
}

Context& Job::context() {
  if (!context_) throw NoJob();
  return *context_;
}

DeviceCommunicator& Job::device() const {
  if (!device_) refuse("the job uses no device; call ddl_device_init on all ranks first");
  return *device_;
}

void Job::end() {
  if (!context_) throw NoJob();
  root_work.reset();
  std::optional<Error> unwaited;
  for (ddl_reducer* const reducer : reducers_) {
    if (!unwaited) unwaited = unwaited_step("ddl_finalize", *reducer);
  }
  reducers_.clear();
  count_reducers();
  handles_.clear();  // reducers wait for reductions in flight
  device_.reset();
  memory_.clear();
  context_.reset();
  has_ended_ = true;
  if (unwaited) throw Error(*unwaited);
  errors_end_the_program_ = false;
}

ddl_reducer& Job::reducer(ddl_reducer* handle) const {
  if (handle != nullptr) {
    if (std::ranges::find(reducers_, handle) == reducers_.end()) refuse_foreign_handle();
    return *handle;
  }
  ddl_reducer* const only = only_reducer_;
  if (only == nullptr) refuse("reducer is null, which stands for the only one; found none or several");
  return *only;
}

ddl_reducer* Job::add(std::unique_ptr<ddl_reducer> reducer) {
  ddl_reducer* const handle = reducer.get();
  handles_.emplace(handle, std::move(reducer));
  reducers_.push_back(handle);
  count_reducers();
  return handle;
}

void Job::remove(ddl_reducer* handle) {
  if (handle == nullptr) return;
  require_handle(handle);
  const std::optional<Error> unwaited = unwaited_step("ddl_reducer_free", *handle);
  std::erase(reducers_, handle);
  count_reducers();
  destroy(handle);
  if (unwaited) throw Error(*unwaited);
}

void Job::count_reducers() { only_reducer_ = reducers_.size() == 1 ? reducers_.front() : nullptr; }

std::optional<Error> Job::unwaited_step(const char* function, ddl_reducer& reducer) {
  const bool is_over = !ReducerAccess::state(reducer.reducer).is_in_step();
  if (is_over || membership_of(*context_).job->failed()) return {};
  Error error(ErrorCode::invalid_argument,
              "a reducer's step has begun and was never waited for; call ddl_reducer_wait (on devices "
              "ddl_reducer_finish) after backward, in every step");
  // The results of these functions are seldom looked at.
  if (!errors_end_the_program_) context_->log().error(fmt::format("{}: {}", function, error.what()));
  return error;
}

void Job::note_failure(const Error& error) {
  if (context_) has_failed_ = true;
  if (!errors_end_the_program_) return;
  int status = error.code() == ErrorCode::invalid_argument ? 2 : 1;
  if (!context_) {
    std::fprintf(stderr, "%s\n", error.what());
  } else {
    errors_end_the_program_ = false;  // what follows may fail
    status = context_->run([&]() -> int { throw Error(error); });
    reported("ddl_finalize", [&] { end(); });
  }
  std::exit(status);
}

std::string Job::brief(std::string_view what) const {
  const std::size_t line = what.find('\n');
  if (line == what.npos || !context_) return std::string(what);
  collectives::Watch* const watch = membership_of(*context_).watching.watch.get();
  if (watch == nullptr || !watch->failed() || !watch->report().scope.empty()) return std::string(what);
  return fmt::format("{} (the report is above)", what.substr(0, line));
}

void* Job::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes > SIZE_MAX - alignment) fail_with(ErrorCode::invalid_argument, "{} bytes are too many", bytes);
  std::size_t room = bytes + alignment;
  SharedBuffer<std::byte> buffer = allocate_bytes(context(), room);
  void* memory = buffer.data();
  std::align(alignment, bytes, memory, room);
  memory_.emplace(memory, std::move(buffer));
  return memory;
}

bool Job::release(void* memory) { return memory_.erase(memory) != 0; }

void Job::destroy(const void* handle) {
  if (handle != nullptr && handles_.erase(handle) == 0) require_handle(handle);
}

void Job::require_handle(const void* handle) const {
  if (handle == nullptr) refuse("the handle is null");
  if (!handles_.contains(handle)) refuse_foreign_handle();
}

DataType type_of(int type, std::string_view what) {
  if (type < 0 || type >= types) {
    refuse("{}: found {}, expected DDL_U8 (0) to DDL_BF16 ({})", what, type, types - 1);
  }
  return static_cast<DataType>(type);
}

ReduceOp op_of(int op) {
  if (op < 0 || op >= ops) refuse("op: found {}, expected DDL_SUM (0) to DDL_PROD ({})", op, ops - 1);
  return static_cast<ReduceOp>(op);
}

std::size_t count_of(std::int64_t count) {
  if (count < 0) refuse("count: found {}, expected 0 or more", count);
  return as_index(count);
}

void require(const void* pointer, const char* what) {
  if (pointer == nullptr) refuse("{} is null", what);
}

int failed(const char* function, const std::exception& error) noexcept {
  // The C error codes are those of ErrorCode plus 1.
  static_assert(DDL_INVALID_ARGUMENT == static_cast<int>(ErrorCode::invalid_argument) + 1 &&
                DDL_INTERNAL == static_cast<int>(ErrorCode::internal) + 1);
  Job& job = Job::of_process();
  const auto* const own = dynamic_cast<const Error*>(&error);
  try {
    set_message(function, job.brief(without_class(error.what())));
    const Error told(own != nullptr ? own->code() : ErrorCode::internal, last_message);
    job.note_failure(own != nullptr && own->agreed() ? told.as_agreed() : told);
  } catch (const std::exception&) {
    last_message.clear();
  }
  if (dynamic_cast<const NoJob*>(&error) != nullptr) return DDL_NOT_INITIALIZED;
  return own != nullptr ? static_cast<int>(own->code()) + 1 : DDL_INTERNAL;
}

void set_message(const char* function, std::string_view text) {
  last_message = fmt::format("{}: {}", function, text);
}

void in_step(const char* function, ddl_reducer* handle, const std::function<void(ddl_reducer&)>& body) {
  ddl_reducer& own = Job::of_process().reducer(handle);
  try {
    body(own);
  } catch (const Error& error) {
    ReducerAccess::state(own.reducer)
        .fail({error.code(), fmt::format("{}: {}", function, without_class(error.what()))});
    throw;
  }
}

}  // namespace ddl::c_api

const char* ddl_error_message(void) { return ddl::c_api::last_message.c_str(); }
