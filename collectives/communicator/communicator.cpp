#include "ddl/communicator.hpp"

#include <utility>

#include "collectives/communicator/communicator_impl.hpp"

namespace ddl {

using namespace collectives;

Communicator::Communicator(std::shared_ptr<CommunicatorImpl> impl) : impl_(std::move(impl)) {}

int Communicator::rank() const noexcept { return impl_->rank(); }
int Communicator::size() const noexcept { return impl_->size(); }
const topology::RankMap& Communicator::rank_map() const noexcept { return impl_->rank_map(); }

void Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                              ReduceOp op) {
  impl_->run(all_reduce_request(impl_->place(), input, output, count, type, op));
}
Work Communicator::all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                    ReduceOp op) {
  return Work(impl_->start(all_reduce_request(impl_->place(), input, output, count, type, op)));
}

void Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                  ReduceOp op) {
  impl_->run(reduce_scatter_request(impl_->place(), input, output, count, type, op));
}
Work Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                        ReduceOp op) {
  return Work(impl_->start(reduce_scatter_request(impl_->place(), input, output, count, type, op)));
}

void Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type) {
  impl_->run(all_gather_request(impl_->place(), input, output, count, type));
}
Work Communicator::all_gather_async(const void* input, void* output, std::size_t count, DataType type) {
  return Work(impl_->start(all_gather_request(impl_->place(), input, output, count, type)));
}

void Communicator::broadcast(const void* input, void* output, std::size_t count, DataType type, int root) {
  impl_->run(broadcast_request(impl_->place(), input, output, count, type, root));
}
Work Communicator::broadcast_async(const void* input, void* output, std::size_t count, DataType type,
                                   int root) {
  return Work(impl_->start(broadcast_request(impl_->place(), input, output, count, type, root)));
}

void Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                          int root) {
  impl_->run(reduce_request(impl_->place(), input, output, count, type, op, root));
}
Work Communicator::reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                ReduceOp op, int root) {
  return Work(impl_->start(reduce_request(impl_->place(), input, output, count, type, op, root)));
}

void Communicator::barrier() { impl_->run(barrier_request()); }
Work Communicator::barrier_async() { return Work(impl_->start(barrier_request())); }

Communicator Communicator::split(int color, int key) { return Communicator(impl_->split(color, key)); }

Communicator Communicator::subgroup(std::span<const int> ranks,
                                    const std::function<std::int64_t(std::int64_t)>& greatest) {
  return Communicator(impl_->subgroup(ranks, greatest));
}

topology::Plan Communicator::plan(topology::Collective collective, std::uint64_t bytes, DataType type) const {
  return impl_->plans().plan(collective, bytes, type)->plan;
}

}  // namespace ddl
