#include "topology/fuzz/plan_checks.hpp"

#include <charconv>
#include <optional>
#include <stdexcept>
#include <string>

#include "ddl/error.hpp"
#include "ddl/topology/plan.hpp"
#include "ddl/topology/program.hpp"
#include "ddl/topology/verifier.hpp"

namespace ddl::topology {
namespace {

constexpr std::string_view source = "fuzzed";

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

void require_message(const Error& error, ErrorCode code) {
  const std::string_view message = error.what();
  require(error.code() == code, "wrong code: " + std::string(message));
  require(message.size() < 2000, "a message of " + std::to_string(message.size()) + " bytes");
  for (const char c : message) {
    require(c >= ' ' && c <= '~', "a message that a terminal may take for orders: " + std::string(message));
  }
}

/// The number of positions in the message about a well-formed decomposition with the wrong product.
std::optional<int> positions_in(std::string_view message) {
  constexpr std::string_view start = "decomposition ";
  const auto has = message.find(" has ");
  if (!message.starts_with(start) || message.substr(start.size()).starts_with('\'') || has == message.npos) {
    return {};  // quoted text may contain anything
  }
  const std::string_view number = message.substr(has + 5);
  int positions = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), positions);
  require(error == std::errc{} && std::string_view(end).starts_with(" positions, but there are -1 ranks"),
          "which numbers? " + std::string(message));
  return positions;
}

}  // namespace

bool check_plan_from_json(std::string_view bytes) {
  std::optional<Plan> plan;
  try {
    plan.emplace(plan_from_json(bytes, source));
  } catch (const Error& error) {
    require_message(error, ErrorCode::corrupt_data);
    const std::string_view message = error.what();
    require(message.starts_with(source), "no source: " + std::string(message));
    const bool names_both = message.find("found") != message.npos && message.find("expected") != message.npos;
    require(names_both || message.find(" positions, but there") != message.npos,
            "neither found nor expected: " + std::string(message));
    return false;
  }
  require_valid(*plan);
  require(plan_from_json(to_json(*plan), source) == *plan, "does not come back equal");
  require(!summary(*plan).empty() && !to_text(*plan).empty(), "nothing to read");
  if (plan->decomposition.ranks() <= 16) {
    // Few elements, whatever the number of chunks.
    const std::size_t count = has_pieces(plan->collective) ? 2 * plan->order.size() : 7;
    const Verdict verdict = verify(lower_all(*plan, count, plan->decomposition.ranks() - 1));
    require(verdict.ok, verdict.problem);
  }
  return true;
}

bool check_decomposition(std::string_view bytes) {
  std::optional<int> positions;
  try {
    Decomposition::parse(bytes, -1);
    require(false, "a grid of -1 ranks");
  } catch (const Error& error) {
    require_message(error, ErrorCode::invalid_argument);
    positions = positions_in(error.what());
    if (!positions) {
      const std::string_view message = error.what();
      require(message.find("found") != message.npos && message.find("expected") != message.npos,
              "neither found nor expected: " + std::string(message));
      return false;
    }
  }
  const Decomposition grid = Decomposition::parse(bytes, *positions);
  require(grid.ranks() == *positions, "another number of ranks");
  require(grid.group_begin(grid.groups()) == grid.ranks(), "groups do not fill the grid");
  require(grid.group_of(grid.ranks() - 1) == grid.groups() - 1, "the last rank is not in the last group");
  require(Decomposition::parse(to_string(grid), *positions) == grid, "does not come back equal");
  return true;
}

bool check_mode(std::string_view bytes) {
  try {
    const Mode mode = mode_from_letter(bytes);
    require(bytes == std::string(1, letter_of(mode)), "taken for " + std::string(to_string(mode)));
  } catch (const Error& error) {
    require_message(error, ErrorCode::invalid_argument);
    require(std::string_view("prnbcm").find(bytes) == std::string_view::npos || bytes.size() != 1,
            "a letter was refused");
    return false;
  }
  return true;
}

}  // namespace ddl::topology
