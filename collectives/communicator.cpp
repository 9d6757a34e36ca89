#include "ddl/communicator.hpp"

#include <utility>

#include "collectives/communicator_impl.hpp"

namespace ddl {

Communicator::Communicator(std::shared_ptr<collectives::CommunicatorImpl> impl) : impl_(std::move(impl)) {}

int Communicator::rank() const noexcept { return impl_->rank(); }
int Communicator::size() const noexcept { return impl_->size(); }
const topology::RankMap& Communicator::rank_map() const noexcept { return impl_->rank_map(); }

void Communicator::all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) {
  impl_->all_reduce(data, count, type, op);
}
void Communicator::broadcast(void* data, std::size_t bytes, int root) { impl_->broadcast(data, bytes, root); }
void Communicator::barrier() { impl_->barrier(); }

topology::Plan Communicator::plan(topology::Collective collective, std::uint64_t bytes, DataType type) const {
  return impl_->plans().plan(collective, bytes, type)->plan;
}

}  // namespace ddl
