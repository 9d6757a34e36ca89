#include "ddl/parameters/parameters.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "collectives/system/fail_agreed.hpp"
#include "ddl/broadcast_parameters.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/context/context_state.hpp"
#include "ddl/drift_check.hpp"
#include "ddl/hash.hpp"

namespace ddl {
namespace {

/// Enough independent lanes to hide the latency of a multiplication (3 cycles; one can start in each cycle).
constexpr std::size_t lanes = 8;
constexpr std::size_t block_bytes = lanes * sizeof(std::uint64_t);
constexpr std::uint64_t odd = 0x9fb21c651e98df25;

using Lanes = std::array<std::uint64_t, lanes>;

void take_block(Lanes& state, const std::byte* block) noexcept {
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    std::uint64_t word = 0;
    std::memcpy(&word, block + lane * sizeof word, sizeof word);
    word ^= state[lane];
    // A bijection of the word and of the state. Without the rotations the highest bit of a word would only
    // affect the highest bit of the state, where the next word's highest bit could cancel it.
    state[lane] = (word ^ std::rotl(word, 24) ^ std::rotl(word, 49)) * odd;
  }
}

std::string describe(const Parameter& parameter) {
  return fmt::format("'{}' of {} {}", parameter.name, parameter.values.size(),
                     to_string(parameter.values.type()));
}

std::uint64_t hash_of_all(const std::vector<Parameter>& parameters) {
  std::uint64_t hash = 0;
  for (const Parameter& parameter : parameters) {
    hash = hash_of(parameter.values.bytes(), hash_of(std::span(parameter.name), hash));
  }
  return hash;
}

bool is_same_on_all(const Context& context, std::uint64_t hash) {
  // The complement reverses the order of integers, so its minimum belongs to the greatest hash.
  std::array<std::int64_t, 2> least{std::bit_cast<std::int64_t>(hash), std::bit_cast<std::int64_t>(~hash)};
  context.communicator().all_reduce(std::span(least), ReduceOp::min);
  return least[0] == ~least[1];
}

/// For each parameter: 1 if, on every rank, it starts where the previous one of the same type ends.
std::vector<std::uint8_t> joined_with_previous(const Context& context,
                                               const std::vector<Parameter>& parameters) {
  std::vector<std::uint8_t> joined(parameters.size());
  for (std::size_t i = 1; i < parameters.size(); ++i) {
    const Elements& previous = parameters[i - 1].values;
    const Elements& next = parameters[i].values;
    joined[i] =
        previous.type() == next.type() && previous.bytes().data() + previous.bytes().size() == next.data();
  }
  context.communicator().all_reduce(std::span(joined), ReduceOp::min);
  return joined;
}

bool overlap(const Elements& a, const Elements& b) {
  const std::less<const void*> before;
  const auto end_of = [](const Elements& values) { return values.bytes().data() + values.bytes().size(); };
  return before(a.data(), end_of(b)) && before(b.data(), end_of(a));
}

}  // namespace

std::uint64_t hash_of(std::span<const std::byte> bytes, std::uint64_t before) noexcept {
  Lanes state;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    state[lane] = SplitMix64::finish(before + (lane + 1) * SplitMix64::gamma);
  }
  std::size_t at = 0;
  for (; at + block_bytes <= bytes.size(); at += block_bytes) take_block(state, bytes.data() + at);
  if (at < bytes.size()) {
    std::array<std::byte, block_bytes> last{};
    std::memcpy(last.data(), bytes.data() + at, bytes.size() - at);
    take_block(state, last.data());
  }
  std::uint64_t hash = bytes.size();
  for (const std::uint64_t each : state) hash = SplitMix64::finish(hash ^ each);
  return hash;
}

void require_same_shapes(const Context& context, std::string_view operation,
                         const std::vector<Parameter>& parameters) {
  std::vector<std::string> entries;
  for (const Parameter& parameter : parameters) entries.push_back(describe(parameter));
  require_same_entries(context, operation, "parameter", entries);
}

void require_same_bits(const Context& context, std::string_view operation,
                       const std::vector<Parameter>& parameters, std::string_view advice) {
  if (is_same_on_all(context, hash_of_all(parameters))) return;
  std::vector<std::string> entries;
  for (const Parameter& parameter : parameters) {
    entries.push_back(
        fmt::format("{} with hash {:016x}", describe(parameter), hash_of(parameter.values.bytes())));
  }
  const std::optional<std::string> difference = first_difference(context, "parameter", entries);
  fail_agreed(ErrorCode::mismatch, "{}: {}; {}", operation,
              difference.value_or("the parameters change while they are compared"), advice);
}

void broadcast_parameters(const Context& context, const std::vector<Parameter>& parameters, int root) {
  require_same_entries(context, "broadcast_parameters", "argument", {fmt::format("root {}", root)});
  if (root < 0 || root >= context.size()) {
    fail_agreed(ErrorCode::invalid_argument, "broadcast_parameters: root {} is none of the {} ranks", root,
                context.size());
  }
  require_same_shapes(context, "broadcast_parameters", parameters);
  if (parameters.empty()) return;

  const std::vector<std::uint8_t> joined = joined_with_previous(context, parameters);
  for (std::size_t begin = 0; begin < parameters.size();) {
    std::size_t end = begin + 1;
    std::size_t count = parameters[begin].values.size();
    for (; end < parameters.size() && joined[end] != 0; ++end) count += parameters[end].values.size();
    void* const data = parameters[begin].values.data();
    context.communicator().broadcast(data, data, count, parameters[begin].values.type(), root);
    begin = end;
  }
  require_same_bits(
      context, "broadcast_parameters", parameters,
      "after the broadcast all must have the root's bits: parameters of a rank overlap in memory, "
      "or something writes to them meanwhile; if neither, please report it");
  if (context.options().check) {
    std::vector<Parameter>& all = context.state().broadcast_parameters;
    for (const Parameter& parameter : parameters) {
      std::erase_if(all, [&](const Parameter& other) { return overlap(other.values, parameter.values); });
    }
    all.insert(all.end(), parameters.begin(), parameters.end());
  }
}

void check_broadcast_parameters(const Context& context) {
  const std::vector<Parameter>& parameters = context.state().broadcast_parameters;
  if (parameters.empty()) return;
  require_same_bits(context, "DDL_CHECK", parameters,
                    "the ranks' models have drifted apart in the last step, by an update that one skips, a "
                    "random number, or memory that is overwritten; or what broadcast_parameters was given "
                    "is not the model's memory any more");
}

void check_same_parameters(const Context& context, const std::vector<Parameter>& parameters) {
  require_same_bits(
      context, "check_same_parameters", parameters,
      "the ranks' models have drifted apart. Go on from a checkpoint of before, and look for what "
      "ranks do differently: an update that one skips, a random number, memory that is overwritten");
}

DriftCheck::DriftCheck(const Context& context, std::vector<Parameter> parameters, std::uint64_t every_steps)
    : context_(context), parameters_(std::move(parameters)), every_steps_(every_steps) {
  require_same_entries(context_, "DriftCheck", "argument", {fmt::format("every {} steps", every_steps_)});
  require_same_shapes(context_, "DriftCheck", parameters_);
}

bool DriftCheck::is_due(std::uint64_t step) const noexcept {
  return every_steps_ != 0 && step % every_steps_ == 0;
}

bool DriftCheck::step(std::uint64_t step) {
  if (!is_due(step)) return false;
  check_same_parameters(context_, parameters_);
  return true;
}

}  // namespace ddl
