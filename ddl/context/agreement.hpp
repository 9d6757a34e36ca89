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

/// What was thrown, as an error of the library's.
Error as_error(const std::exception_ptr& exception);

/// Collective. Nothing if all ranks have the same entries in the same order. Else the same text on every
/// rank: "KIND 3 is ENTRY on rank 0, but ENTRY on rank 2 (ranks that differ from rank 0 there: 2, 5)".
/// `entry` is a description for people that holds all that must agree.
std::optional<std::string> first_difference(const Context& context, std::string_view kind,
                                            const std::vector<std::string>& entries);

/// Collective. Unless all ranks have the same entries in the same order, every rank throws the same
/// `mismatch`: "OPERATION: KIND 3 is ...", as above.
void require_same_entries(const Context& context, std::string_view operation, std::string_view kind,
                          const std::vector<std::string>& entries);

/// Every rank's text, by rank, on every rank. Collective. Takes memory for the longest one of each rank.
std::vector<std::string> gather_texts(const Context& context, std::string_view mine);

/// Names in the exit report what the rank does while this lives.
class NamedScope {
 public:
  /// The name ends up in a line of text.
  NamedScope(collectives::Watch* watch, std::string_view kind, std::string_view name)
      : watch_(watch), what_(fmt::format("{} \"{}\"", kind, topology::printable(name))) {
    if (watch_ != nullptr) before_ = watch_->set_scope("comes to " + what_);
  }
  NamedScope(const NamedScope&) = delete;
  NamedScope& operator=(const NamedScope&) = delete;
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

/// The two halves of `Context::root_only`: from the constructor to `end` rank 0 works and the others go on to
/// `end`, where they wait. Both are collective.
class RootWork {
 public:
  RootWork(const Context& context, std::string_view name);
  /// `mine`: what rank 0's work threw; thrown on every rank, agreed.
  void end(const std::exception_ptr& mine);

 private:
  const Context context_;
  const std::string name_;
  const NamedScope scope_;
};

}  // namespace ddl
