#include "ddl/device/nccl/fingerprints.hpp"

#include "ddl/cuda_check.hpp"

namespace ddl::device {
Fingerprints::Fingerprints(Context& context) {
  context.on_all_ranks("fingerprints on devices", [&] {
    check_cuda(load_fingerprint_kernels(), "cudaFuncGetAttributes");
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, compared_numbers * sizeof(std::int64_t)), "cudaMalloc");
    numbers_.reset(static_cast<std::int64_t*>(memory));
    found_.allocate();
  });
  batch_.first = 1;
}

void Fingerprints::add(const DeviceCall& call, NcclGroup& group) {
  history_.add(fingerprint_of(call));
  if (call.is_captured) return;
  batch_.values[held_++] = static_cast<std::int64_t>(history_.value());
  if (held_ == fingerprints_at_once) compare(group, call.stream);
}

void Fingerprints::compare(NcclGroup& group, DeviceStream stream) {
  check_cuda(launch_write_fingerprints(batch_, numbers_.get(), stream), "launch of write_fingerprints");
  group.all_reduce(numbers_.get(), numbers_.get(), compared_numbers, DataType::i64, ReduceOp::max, stream);
  check_cuda(launch_compare_fingerprints(batch_, numbers_.get(), found_.device(), stream),
             "launch of compare_fingerprints");
  batch_ = {.first = batch_.first + held_};
  held_ = 0;
}

std::uint64_t Fingerprints::differs() const noexcept {
  return __atomic_load_n(found_.host(), __ATOMIC_ACQUIRE);
}

}  // namespace ddl::device
