#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/system/fail_agreed.hpp"

namespace ddl::collectives {
namespace {

struct Wish {
  std::int64_t color;
  std::int64_t key;
};

std::vector<int> ranks_of(std::span<const Wish> wishes, std::int64_t color) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color == color) ranks.push_back(static_cast<int>(rank));
  }
  std::ranges::stable_sort(ranks, {}, [&](int rank) { return wishes[as_index(rank)].key; });
  return ranks;
}

}  // namespace

/// Agrees on a number that none of these ranks uses. Another thread that makes another communicator with some
/// of these ranks may choose the same number; then they all retry.
int CommunicatorImpl::agreed_number(const Greatest& greatest) const {
  for (int least = 0;;) {
    const int number = static_cast<int>(greatest(job_->proposed_number(least)));
    const bool taken = job_->take_number(number);
    if (greatest(taken ? 0 : 1) == 0) return number;
    if (taken) job_->give_back_number(number);
    least = number + 1;
  }
}

/// Makes a communicator of `ranks` of this one, in this order. `greatest` takes the maximum over them.
std::shared_ptr<CommunicatorImpl> CommunicatorImpl::part(std::span<const int> ranks,
                                                         const Greatest& greatest) const {
  std::vector<int> numbers;
  try {
    while (numbers.size() <= settings_.lanes.size()) numbers.push_back(agreed_number(greatest));
  } catch (...) {
    for (const int number : numbers) job_->give_back_number(number);
    throw;
  }
  CommunicatorSettings settings;
  settings.number = numbers.front();
  settings.lanes.assign(numbers.begin() + 1, numbers.end());
  settings.members.clear();
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    if (rank == settings_.rank) settings.rank = static_cast<int>(settings.members.size());
    settings.members.push_back(settings_.members[as_index(rank)]);
    hosts.push_back(settings_.map.host_name(settings_.map.host_of(rank)));
  }
  settings.map = topology::RankMap(hosts);
  settings.plans = settings_.plans->of_members(settings.members);
  return std::make_shared<CommunicatorImpl>(job_, std::move(settings));
}

std::shared_ptr<CommunicatorImpl> CommunicatorImpl::split(int color, int key) {
  std::vector<Wish> wishes(as_index(size()));
  Wish& own = wishes[as_index(rank())];
  own = {color, key};
  run(all_gather_request(place(), &own, wishes.data(), 2, DataType::i64));
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color >= 0) continue;
    fail_agreed(ErrorCode::invalid_argument,
                "split: found color {} on rank {}, expected 0 or more: every rank takes part in one "
                "of the new communicators",
                wishes[rank].color, rank);
  }
  return part(ranks_of(wishes, color), [this](std::int64_t value) {
    run(all_reduce_request(&value, &value, 1, DataType::i64, ReduceOp::max));
    return value;
  });
}

std::shared_ptr<CommunicatorImpl> CommunicatorImpl::subgroup(std::span<const int> ranks,
                                                             const Greatest& greatest) {
  std::vector<bool> found(as_index(size()));
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size() || found[as_index(rank)]) {
      fail_with(ErrorCode::invalid_argument,
                "subgroup: found rank {} {}, expected different ranks of 0 to {}", rank,
                rank < 0 || rank >= size() ? "in the list" : "twice in the list", size() - 1);
    }
    found[as_index(rank)] = true;
  }
  if (!found[as_index(rank())]) {
    fail_with(ErrorCode::invalid_argument,
              "subgroup: this rank, {}, is not in the list: only those that are call it", rank());
  }
  job_->require_usable("subgroup");
  return part(ranks, greatest);
}

}  // namespace ddl::collectives
