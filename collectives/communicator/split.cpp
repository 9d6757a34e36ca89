#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>

#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/error.hpp"

namespace ddl::collectives {
namespace {

struct Wish {
  std::int64_t color;
  std::int64_t key;
};

std::int64_t greatest(CommunicatorImpl& communicator, std::int64_t value) {
  communicator.run(all_reduce_request(communicator.place(), &value, &value, 1, DataType::i64, ReduceOp::max));
  return value;
}

/// Ranks of `color`, by key and rank.
std::vector<int> ranks_of(std::span<const Wish> wishes, std::int64_t color) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color == color) ranks.push_back(static_cast<int>(rank));
  }
  std::ranges::stable_sort(ranks, {}, [&](int rank) { return wishes[static_cast<std::size_t>(rank)].key; });
  return ranks;
}

}  // namespace

/// A number that none of these ranks has used for a communicator. Another thread may be splitting another
/// communicator with some of these ranks, which may choose the same number: then they all try again.
int CommunicatorImpl::agreed_number() {
  for (int least = 0;;) {
    const int number = static_cast<int>(greatest(*this, job_->proposed_number(least)));
    const bool taken = job_->take_number(number);
    if (greatest(*this, taken ? 0 : 1) == 0) return number;
    least = number + 1;
  }
}

std::shared_ptr<CommunicatorImpl> CommunicatorImpl::split(int color, int key) {
  std::vector<Wish> wishes(static_cast<std::size_t>(size()));
  Wish& own = wishes[static_cast<std::size_t>(rank())];
  own = {color, key};
  run(all_gather_request(place(), &own, wishes.data(), 2, DataType::i64));
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color >= 0) continue;
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("split: found color {} on rank {}, expected 0 or more: every rank takes part in one "
                    "of the new communicators",
                    wishes[rank].color, rank))
        .as_agreed();
  }
  CommunicatorSettings settings;
  settings.number = agreed_number();
  for (std::size_t i = 0; i < settings_.lanes.size(); ++i) settings.lanes.push_back(agreed_number());
  const std::vector<int> ranks = ranks_of(wishes, color);
  settings.members.clear();
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    if (rank == settings_.rank) settings.rank = static_cast<int>(settings.members.size());
    settings.members.push_back(settings_.members[static_cast<std::size_t>(rank)]);
    hosts.push_back(settings_.map.host_name(settings_.map.host_of(rank)));
  }
  settings.map = topology::RankMap(hosts);
  settings.plans = settings_.plans->of_members(settings.members);
  return std::make_shared<CommunicatorImpl>(job_, std::move(settings));
}

}  // namespace ddl::collectives
