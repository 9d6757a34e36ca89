#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"

namespace ddl {

/// What was thrown, as an error of the library's.
Error as_error(const std::exception_ptr& exception);

/// Collective. Nothing if all ranks have the same entries in the same order. Else the same text on every
/// rank: "KIND 3 is ENTRY on rank 0, but ENTRY on rank 2 (ranks that differ from rank 0 there: 2, 5)".
/// `entry` is a description for people that holds all that must agree.
std::optional<std::string> first_difference(Context& context, std::string_view kind,
                                            const std::vector<std::string>& entries);

/// Collective. Unless all ranks have the same entries in the same order, every rank throws the same
/// `mismatch`: "OPERATION: KIND 3 is ...", as above.
void require_same_entries(Context& context, std::string_view operation, std::string_view kind,
                          const std::vector<std::string>& entries);

/// Every rank's text, by rank, on every rank. Collective. Takes memory for the longest one of each rank.
std::vector<std::string> gather_texts(Context& context, std::string_view mine);

}  // namespace ddl
