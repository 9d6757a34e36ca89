#include "ddl/timeline/gather_texts.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator/plan_comparison.hpp"

namespace ddl {
namespace {

using collectives::CommunicatorImpl;
using topology::StepKind;

constexpr std::size_t most_bytes = std::size_t{1} << 20;

/// `bytes` of `buffer` go from `sender` to rank 0. All ranks call it.
void send_piece(CommunicatorImpl& communicator, int sender, std::string& buffer, std::size_t bytes) {
  const int rank = communicator.rank();
  std::shared_ptr<const collectives::PreparedProgram> program;
  if (rank == 0 || rank == sender) {
    topology::Program steps;
    steps.steps.push_back({.kind = rank == 0 ? StepKind::receive : StepKind::send,
                           .peer = rank == 0 ? sender : 0,
                           .begin = 0,
                           .end = bytes});
    program = communicator.prepare(std::move(steps), bytes, 1);
  }
  communicator.run("gather_texts", std::move(program), buffer.data(), bytes, DataType::u8, ReduceOp::max);
}

}  // namespace

std::vector<std::int64_t> all_values(CommunicatorImpl& communicator, std::int64_t own) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<std::int64_t> values(ranks, std::numeric_limits<std::int64_t>::min());
  values[static_cast<std::size_t>(communicator.rank())] = own;
  if (ranks == 1) return values;
  auto program = communicator.prepare(
      collectives::greatest_program(communicator.size(), communicator.rank(), ranks), ranks, sizeof own);
  communicator.run("all_values", std::move(program), values.data(), ranks, DataType::i64, ReduceOp::max);
  return values;
}

void gather_texts(CommunicatorImpl& communicator, std::string_view text,
                  const std::function<void(int rank, std::string_view piece)>& take) {
  const std::vector<std::int64_t> sizes = all_values(communicator, static_cast<std::int64_t>(text.size()));
  const int own = communicator.rank();
  std::string buffer(most_bytes, '\0');
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const auto all = static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]);
    for (std::size_t begin = 0; begin < all; begin += most_bytes) {
      const std::size_t bytes = std::min(most_bytes, all - begin);
      if (rank == own) std::memcpy(buffer.data(), text.data() + begin, bytes);
      if (rank != 0) send_piece(communicator, rank, buffer, bytes);
      if (own == 0) take(rank, std::string_view(buffer).substr(0, bytes));
    }
  }
}

}  // namespace ddl
