#include "ddl/gradients/learned_buckets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "ddl/error.hpp"
#include "ddl/parameters/parameters.hpp"

namespace ddl {
namespace {

constexpr const char* format = "ddl gradient reducer";
constexpr int version = 1;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::corrupt_data,
              fmt::format("GradientReducer::restore: {}; expected what GradientReducer::state gave", why));
}

bool is_permutation(std::vector<std::size_t> order) {
  std::ranges::sort(order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

}  // namespace

std::string LearnedBuckets::json() const {
  return nlohmann::ordered_json{
      {"format", format}, {"version", version}, {"gradients", gradients}, {"bucket_bytes", bucket_bytes},
      {"order", order},   {"ranks", ranks},     {"plans", plans}}
      .dump();
}

LearnedBuckets LearnedBuckets::parse(std::string_view json, std::size_t count) {
  LearnedBuckets state;
  try {
    const auto object = nlohmann::json::parse(json);
    if (object.at("format") != format) refuse("found another kind of JSON");
    if (object.at("version") != version) {
      refuse(fmt::format("found version {}, which this version of the library does not know",
                         object.at("version").dump()));
    }
    object.at("gradients").get_to(state.gradients);
    object.at("bucket_bytes").get_to(state.bucket_bytes);
    object.at("order").get_to(state.order);
    object.at("ranks").get_to(state.ranks);
    object.at("plans").get_to(state.plans);
  } catch (const nlohmann::json::exception& error) {
    refuse(fmt::format("this is no state: {}", error.what()));
  }
  const bool fits = state.order.empty() || (state.order.size() == count && is_permutation(state.order));
  if (!fits || state.bucket_bytes == 0) refuse("its buckets or its order cannot be");
  return state;
}

std::vector<std::size_t> reverse_order(std::size_t gradients) {
  std::vector<std::size_t> order(gradients);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::vector<std::size_t> learn_order(Communicator& communicator, std::span<const std::size_t> own,
                                     std::size_t gradients) {
  std::vector<std::int64_t> places(gradients, static_cast<std::int64_t>(gradients));
  for (std::size_t i = 0; i < own.size(); ++i) places[own[i]] = static_cast<std::int64_t>(i);
  communicator.all_reduce(std::span(places), ReduceOp::sum);
  std::vector<std::size_t> order = reverse_order(gradients);
  std::ranges::stable_sort(order, {}, [&](std::size_t index) { return places[index]; });
  return order;
}

std::uint64_t hash_of_entries(const std::vector<std::string>& entries) noexcept {
  std::uint64_t hash = 0;
  for (const std::string& entry : entries) hash = hash_of(std::span(entry), hash);
  return hash;
}

}  // namespace ddl
