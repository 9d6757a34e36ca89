#include "collectives/communicator/job.hpp"

#include <algorithm>

#include "collectives/system/fail_agreed.hpp"

namespace ddl::collectives {

Error as_error(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return *own;
  return {ErrorCode::internal, error.what()};
}

Job::Job(std::shared_ptr<Engine> engine, std::chrono::milliseconds deadline, int most_communicators)
    : engine_(std::move(engine)), deadline_(deadline), most_communicators_(most_communicators) {}

void Job::on_new_plan(PlanObserver observer) {
  const std::lock_guard lock(observer_mutex_);
  observer_ = std::move(observer);
}

void Job::tell_of_plan(const topology::Plan& plan, const std::vector<std::string>& notes) {
  const std::lock_guard lock(observer_mutex_);
  if (observer_) observer_(plan, notes);
}

void Job::refuse(const CallName& name) const {
  if (!closed_) throw Error(engine_->failed_before(name));
  fail_with(ErrorCode::transport, "{}: this communicator's context has been destroyed", name.view());
}

void Job::announce_failure(const std::string& why) {
  if (failed_.exchange(true)) return;
  engine_->announce_failure(why);
}

void Job::close() {
  if (closed_.exchange(true)) return;
  while (!failed()) {
    std::shared_ptr<WorkState> work;
    {
      const std::lock_guard lock(mutex_);
      if (open_.empty()) break;
      work = *open_.begin();
    }
    try {
      work->wait();
    } catch (const Error&) {  // reported to the owner of the handle
    }
    forget(work);
  }
  engine_->close();
  on_new_plan({});
}

std::shared_ptr<WorkState> Job::open_work() {
  std::shared_ptr<WorkState> work = engine_->new_work();
  const std::lock_guard lock(mutex_);
  open_.insert(work);
  return work;
}

void Job::finish(const std::shared_ptr<WorkState>& work, std::optional<Error> error) {
  work->finish(std::move(error));
  forget(work);
}

void Job::forget(const std::shared_ptr<WorkState>& work) {
  const std::lock_guard lock(mutex_);
  open_.erase(work);
}

Error Job::give_up(const CallId& call, int rank, const std::exception& problem) {
  const auto* const own = dynamic_cast<const Error*>(&problem);
  const Error error(
      own != nullptr ? own->code() : ErrorCode::internal,
      fmt::format("{} #{} on rank {}: {}", call.name.view(), call.sequence, rank, problem.what()));
  return engine_->give_up(error, call);
}

int Job::proposed_number(int least) {
  const std::lock_guard lock(mutex_);
  const auto first_free = [&](int from) {
    while (taken_.contains(from)) ++from;
    return from;
  };
  const int next = first_free(std::max(next_number_, least));
  const bool is_used_up = next >= most_communicators_ && least < next_number_;
  const int proposed = is_used_up ? first_free(std::max(1, least)) : next;
  next_number_ = proposed + 1;
  return proposed;
}

bool Job::take_number(int number) {
  if (number >= most_communicators_) {
    fail_agreed(ErrorCode::unsupported,
                "split: this job has {} communicators in use, and its messages can tell no more apart: reuse "
                "communicators, and destroy those that are no longer needed",
                most_communicators_);
  }
  const std::lock_guard lock(mutex_);
  return taken_.insert(number).second;
}

void Job::give_back_number(int number) {
  const std::lock_guard lock(mutex_);
  taken_.erase(number);
}

}  // namespace ddl::collectives
