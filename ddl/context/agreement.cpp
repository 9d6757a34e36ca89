#include "ddl/context/agreement.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>

#include "collectives/system/fail_agreed.hpp"
#include "ddl/context/context_state.hpp"

namespace ddl {
namespace {

std::string entry_or_nothing(const std::vector<std::string>& entries, std::size_t index) {
  return index < entries.size() ? entries[index] : fmt::format("missing ({} in all)", entries.size());
}

std::exception_ptr run_catching(const std::function<void()>& work) {
  try {
    work();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// Gives every rank `root`'s error; the other ranks' `mine` is ignored.
Error broadcast_error(const Context& context, const std::exception_ptr& mine, int root) {
  std::int64_t code = 0;
  std::string text;
  if (context.rank() == root) {
    const Error error = as_error(mine);
    code = static_cast<std::int64_t>(error.code());
    text = error.what();
  }
  context.communicator().broadcast(std::span(&code, 1), root);
  text = context.broadcast_string(text, root);
  return {static_cast<ErrorCode>(code), text};
}

int exit_status(const Error& error) { return error.code() == ErrorCode::invalid_argument ? 2 : 1; }

}  // namespace

std::optional<std::string> first_difference(const Context& context, std::string_view kind,
                                            const std::vector<std::string>& entries) {
  constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::string packed;
  nlohmann::json::to_cbor(entries, packed);  // JSON text cannot hold all bytes that an entry may contain
  const std::vector<std::string> root = nlohmann::json::from_cbor(context.broadcast_string(packed));
  const auto first = std::ranges::mismatch(entries, root);
  const bool same = first.in1 == entries.end() && first.in2 == root.end();

  std::vector<std::int64_t> differences(as_index(context.size()), none);
  differences[as_index(context.rank())] = same ? none : first.in1 - entries.begin();
  context.communicator().all_reduce(std::span(differences), ReduceOp::min);
  const std::int64_t index = *std::ranges::min_element(differences);
  if (index == none) return std::nullopt;

  std::vector<int> ranks;
  for (int rank = 0; rank < context.size(); ++rank) {
    if (differences[as_index(rank)] == index) ranks.push_back(rank);
  }
  const auto at = as_index(index);
  const std::string other = context.broadcast_string(entry_or_nothing(entries, at), ranks.front());
  return fmt::format("{} {} is {} on rank 0, but {} on rank {} (ranks that differ from rank 0 there: {})",
                     kind, index, entry_or_nothing(root, at), other, ranks.front(), fmt::join(ranks, ", "));
}

void require_same_entries(const Context& context, std::string_view operation, std::string_view kind,
                          const std::vector<std::string>& entries) {
  const std::optional<std::string> difference = first_difference(context, kind, entries);
  if (!difference) return;
  fail_agreed(ErrorCode::mismatch, "{}: {}; every rank must give the same, in the same order", operation,
              *difference);
}

std::vector<std::string> gather_texts(const Context& context, std::string_view mine) {
  const auto ranks = as_index(context.size());
  const auto length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(ranks);
  context.communicator().all_gather(&length, lengths.data(), 1, DataType::i64);
  const auto longest = as_index(*std::ranges::max_element(lengths));
  if (longest == 0) return std::vector<std::string>(ranks);
  std::string padded(mine);
  padded.resize(longest);
  std::string all(ranks * longest, '\0');
  context.communicator().all_gather(padded.data(), all.data(), longest, DataType::u8);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts.push_back(all.substr(rank * longest, static_cast<std::size_t>(lengths[rank])));
  }
  return texts;
}

// Errors that ranks agree on, and reports of errors that they do not agree on.

Error as_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error;
  } catch (const std::filesystem::filesystem_error& error) {
    return {ErrorCode::io, error.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::internal, "out of memory"};
  } catch (const std::exception& error) {
    return {ErrorCode::internal, error.what()};
  } catch (...) {
    return {ErrorCode::internal, "an exception that is not a std::exception was thrown"};
  }
}

RootWork::RootWork(const Context& context, std::string_view name)
    : context_(context), name_(name), scope_(watch_of(context), "root_only", name) {
  // All ranks arrive within the usual deadline; only the wait for the work itself has none.
  context.communicator().barrier();
  if (context.is_root()) {
    scope_.works();
  } else {
    scope_.waits_for("rank 0");
  }
}

void RootWork::end(const std::exception_ptr& mine) {
  collectives::Job& job = communicator_of(context_).job();
  if (mine && job.failed()) std::rethrow_exception(mine);
  std::uint8_t failed = mine ? 1 : 0;
  {
    const collectives::Job::PausedDeadline paused(job);
    context_.communicator().broadcast(std::span(&failed, 1), 0);
  }
  if (failed == 0) return;
  const Error error = broadcast_error(context_, mine, 0);
  fail_agreed(error.code(), "{}: {}", name_, error.what());
}

void Context::root_only(std::string_view name, const std::function<void()>& work) const {
  RootWork root_work(*this, name);
  root_work.end(is_root() ? run_catching(work) : nullptr);
}

void Context::on_all_ranks(std::string_view name, const std::function<void()>& work, WorkTime time) const {
  const NamedScope scope(watch_of(*this), "on_all_ranks", name);
  if (time == WorkTime::unlimited) communicator().barrier();
  scope.works();
  const std::exception_ptr mine = run_catching(work);
  scope.waits_for("the other ranks");
  // A failed job cannot agree on anything.
  if (mine && state_->membership->job->failed()) std::rethrow_exception(mine);
  std::int64_t first_failed = mine ? rank() : size();
  {
    std::optional<collectives::Job::PausedDeadline> paused;
    if (time == WorkTime::unlimited) paused.emplace(*state_->membership->job);
    communicator().all_reduce(std::span(&first_failed, 1), ReduceOp::min);
  }
  if (first_failed == size()) return;

  const int root = static_cast<int>(first_failed);
  const Error error = broadcast_error(*this, mine, root);
  std::uint8_t differs = 1;
  if (mine) {
    const Error own = as_error(mine);
    differs = own.code() != error.code() || std::string_view(own.what()) != error.what() ? 1 : 0;
  }
  communicator().all_reduce(std::span(&differs, 1), ReduceOp::max);
  const std::string text = differs != 0 ? fmt::format("{}: rank {}: {}", name, root, error.what())
                                        : fmt::format("{}: {}", name, error.what());
  throw Error(error.code(), text).as_agreed();
}

void Context::report(const Error& error) const {
  if (error.agreed()) {
    if (is_root()) log().error(error.what());
    return;
  }
  const std::string_view text = error.what();
  const std::string_view first_line = text.substr(0, text.find('\n'));
  announce_failure(*this, std::string(first_line));
  // The exit report, if there is one, is printed once, by rank 0; then this rank prints only its first line.
  collectives::Watch* const watch = state_->membership->watching.watch.get();
  const bool is_reported = watch != nullptr && watch->report().scope.empty();
  log().error(is_reported ? first_line : text);
}

int Context::run(const std::function<int()>& body) const {
  try {
    return body();
  } catch (...) {
    const Error error = as_error(std::current_exception());
    const int status = exit_status(error);
    report(error);
    if (size() > 1 && !error.agreed()) {
      JobMembership& membership = *state_->membership;
      membership.save_timeline_alone();
      membership.bootstrap->abandon();
      membership.bootstrap->abort(status);
    }
    return status;
  }
}

}  // namespace ddl
