#include "ddl/communicator.hpp"

#include <utility>

#include "collectives/communicator/communicator_impl.hpp"
#include "topology/refuse.hpp"

namespace ddl {

using namespace collectives;

Communicator::Communicator(std::shared_ptr<CommunicatorImpl> impl) : impl_(std::move(impl)) {}

int Communicator::rank() const noexcept { return impl_->rank(); }
int Communicator::size() const noexcept { return impl_->size(); }
const topology::RankMap& Communicator::rank_map() const noexcept { return impl_->rank_map(); }

namespace {

/// Number of elements of `part`. Throws unless both have one type and `whole` has `times` as many elements.
std::size_t count_of(const char* name, const ConstElements& whole, const ConstElements& part, int times) {
  if (whole.type() == part.type() && whole.size() == part.size() * as_index(times)) return part.size();
  fail_with(ErrorCode::invalid_argument,
            "{}: found {} elements of {} and {} of {}, expected one type, and {} times "
            "as many of one as of the other",
            name, whole.size(), to_string(whole.type()), part.size(), to_string(part.type()), times);
}

Work start_with_wire(CommunicatorImpl& impl, const Request& request, const Wire& wire) {
  const Request narrow = with_wire(request, {wire.type}, 0);
  return Work(impl.start(with_wire(request, wire, wire.kept.empty() ? 0 : impl.residual_size(narrow))));
}

}  // namespace

void Communicator::all_reduce(ConstElements input, Elements output, ReduceOp op) {
  all_reduce(input.data(), output.data(), count_of("all_reduce", input, output, 1), input.type(), op);
}
Work Communicator::all_reduce_async(ConstElements input, Elements output, ReduceOp op) {
  return all_reduce_async(input.data(), output.data(), count_of("all_reduce", input, output, 1), input.type(),
                          op);
}
void Communicator::reduce_scatter(ConstElements input, Elements output, ReduceOp op) {
  const std::size_t count = count_of("reduce_scatter", input, output, size());
  reduce_scatter(input.data(), output.data(), count, input.type(), op);
}
Work Communicator::reduce_scatter_async(ConstElements input, Elements output, ReduceOp op) {
  const std::size_t count = count_of("reduce_scatter", input, output, size());
  return reduce_scatter_async(input.data(), output.data(), count, input.type(), op);
}
void Communicator::all_gather(ConstElements input, Elements output) {
  all_gather(input.data(), output.data(), count_of("all_gather", output, input, size()), input.type());
}
Work Communicator::all_gather_async(ConstElements input, Elements output) {
  return all_gather_async(input.data(), output.data(), count_of("all_gather", output, input, size()),
                          input.type());
}

void Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                              ReduceOp op) {
  impl_->run(all_reduce_request(input, output, count, type, op));
}
Work Communicator::all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                    ReduceOp op) {
  return Work(impl_->start(all_reduce_request(input, output, count, type, op)));
}

void Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                  ReduceOp op) {
  impl_->run(reduce_scatter_request(impl_->place(), input, output, count, type, op));
}
Work Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                        ReduceOp op) {
  return Work(impl_->start(reduce_scatter_request(impl_->place(), input, output, count, type, op)));
}

Work Communicator::all_reduce_async(std::span<float> values, const Wire& wire) {
  return start_with_wire(
      *impl_, all_reduce_request(values.data(), values.data(), values.size(), DataType::f32, ReduceOp::sum),
      wire);
}
Work Communicator::reduce_scatter_async(const float* input, float* output, std::size_t count,
                                        const Wire& wire) {
  return start_with_wire(
      *impl_, reduce_scatter_request(impl_->place(), input, output, count, DataType::f32, ReduceOp::sum),
      wire);
}

std::size_t Communicator::residual_size(topology::Collective collective, std::size_t count, DataType wire) {
  Request request;
  request.name = "residual_size";
  request.collective = collective;
  request.count = count;
  request.elements = count * as_index(collective == topology::Collective::reduce_scatter ? size() : 1);
  request.type = DataType::f32;
  return impl_->residual_size(with_wire(request, {wire}, 0));
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

topology::Plan Communicator::plan(topology::Collective collective, std::uint64_t bytes, DataType type,
                                  std::optional<DataType> wire) const {
  return impl_->plans().plan(collective, bytes, type, wire)->plan;
}

}  // namespace ddl
