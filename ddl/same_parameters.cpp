#include "ddl/same_parameters.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ddl/agreement.hpp"
#include "ddl/error.hpp"
#include "ddl/parameter_hash.hpp"

namespace ddl {
namespace {

std::string describe(const Parameter& parameter) {
  return fmt::format("'{}' of {} floats", parameter.name, parameter.values.size());
}

std::uint64_t hash_of_all(const std::vector<Parameter>& parameters) {
  std::uint64_t hash = 0;
  for (const Parameter& parameter : parameters) {
    hash = hash_of(parameter.values, hash_of(std::span(parameter.name), hash));
  }
  return hash;
}

bool is_same_on_all(Context& context, std::uint64_t hash) {
  // The complement turns the order of integers round, so the least one is that of the greatest hash.
  std::array<std::int64_t, 2> least{std::bit_cast<std::int64_t>(hash), std::bit_cast<std::int64_t>(~hash)};
  context.communicator().all_reduce(std::span(least), ReduceOp::min);
  return least[0] == ~least[1];
}

}  // namespace

void require_same_shapes(Context& context, std::string_view operation,
                         const std::vector<Parameter>& parameters) {
  std::vector<std::string> entries;
  for (const Parameter& parameter : parameters) entries.push_back(describe(parameter));
  require_same_entries(context, operation, "parameter", entries);
}

void require_same_bits(Context& context, std::string_view operation, const std::vector<Parameter>& parameters,
                       std::string_view advice) {
  if (is_same_on_all(context, hash_of_all(parameters))) return;
  std::vector<std::string> entries;
  for (const Parameter& parameter : parameters) {
    entries.push_back(fmt::format("{} with hash {:016x}", describe(parameter), hash_of(parameter.values)));
  }
  const std::optional<std::string> difference = first_difference(context, "parameter", entries);
  throw Error(ErrorCode::mismatch,
              fmt::format("{}: {}; {}", operation,
                          difference.value_or("the parameters change while they are compared"), advice))
      .as_agreed();
}

}  // namespace ddl
