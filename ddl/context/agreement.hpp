#pragma once

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/watch/watch.hpp"
#include "ddl/context.hpp"
#include "topology/json_text.hpp"

namespace ddl {

/// Converts an exception to the library's type.
Error as_error(const std::exception_ptr& exception);

/// Returns nothing if all ranks have the same entries in the same order, else the same text on every rank:
/// "KIND 3 is ENTRY on rank 0, but ENTRY on rank 2 (ranks that differ from rank 0 there: 2, 5)". An entry is
/// a readable description of everything that must agree. Collective.
std::optional<std::string> first_difference(const Context& context, std::string_view kind,
                                            const std::vector<std::string>& entries);

/// Throws the same `mismatch` on every rank, "OPERATION: KIND 3 is ...", unless all ranks have the same
/// entries in the same order. Collective.
void require_same_entries(const Context& context, std::string_view operation, std::string_view kind,
                          const std::vector<std::string>& entries);

/// Returns every rank's `mine`, by rank, on every rank. Takes memory for the longest text times the number of
/// ranks. Collective.
std::vector<std::string> gather_texts(const Context& context, std::string_view mine);

/// Names the rank's current activity in the exit report while it exists.
class NamedScope {
 public:
  /// `name` may hold any bytes; they are made printable.
  NamedScope(collectives::Watch* watch, std::string_view kind, std::string_view name)
      : watch_(watch), what_(fmt::format("{} \"{}\"", kind, topology::printable(name))) {
    if (watch_ != nullptr) before_ = watch_->set_scope("comes to " + what_);
  }
  NamedScope& operator=(NamedScope&&) = delete;
  ~NamedScope() {
    if (watch_ != nullptr) watch_->set_scope(std::move(before_));
  }

  void works() const { say("in " + what_); }
  void waits_for(std::string_view whom) const { say(fmt::format("waits in {} for {}", what_, whom)); }

 private:
  void say(std::string text) const {
    if (watch_ != nullptr) watch_->set_scope(std::move(text));
  }

  collectives::Watch* watch_;
  std::string what_;
  std::string before_;
};

/// The two halves of `Context::root_only`: rank 0 works between the constructor and `end`; the other ranks
/// wait in `end`. Both are collective.
class RootWork {
 public:
  RootWork(const Context& context, std::string_view name);
  /// `mine`: the exception of rank 0's work, if any; every rank throws it, agreed.
  void end(const std::exception_ptr& mine);

 private:
  const Context context_;
  const std::string name_;
  const NamedScope scope_;
};

}  // namespace ddl
