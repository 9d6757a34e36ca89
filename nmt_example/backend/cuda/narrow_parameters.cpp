#include "nmt_example/backend/cuda/narrow_parameters.hpp"

#include "nmt_example/backend/cuda/kernels.hpp"
#include "nmt_example/backend/cuda/memory.hpp"

namespace nmt::cuda {

void NarrowParameters::update(Copy& copy, cudaStream_t stream) const {
  if (copy.version == version_) return;
  convert(stream, copy.parameter, copy.narrow);
  copy.version = version_;
}

Tensor NarrowParameters::copy_of(const Tensor& parameter, ddl::DataType type, cudaStream_t stream) {
  const Place place{parameter.data, parameter.rows, parameter.cols};
  Copy& copy = copies_[place];
  if (copy.memory == nullptr || copy.narrow.type != type || copy.parameter.stride != parameter.stride) {
    const std::int64_t stride = aligned_stride(parameter.cols);
    copy.memory =
        allocate_device(static_cast<std::size_t>(parameter.rows * stride) * ddl::size_of(type), stream);
    copy.parameter = parameter;
    copy.narrow = {copy.memory.get(), parameter.rows, parameter.cols, stride, type};
    copy.version = 0;
  }
  update(copy, stream);
  if (uses_ != nullptr) uses_->insert(place);
  return copy.narrow;
}

std::size_t NarrowParameters::bytes() const {
  std::size_t sum = 0;
  for (const auto& [place, copy] : copies_)
    sum += static_cast<std::size_t>(copy.narrow.rows * copy.narrow.stride) * ddl::size_of(copy.narrow.type);
  return sum;
}

void NarrowParameters::with_copies_of(Places& places, cudaStream_t stream,
                                      const std::function<void()>& work) {
  for (const Place& place : places) update(copies_.at(place), stream);
  uses_ = &places;
  try {
    work();
  } catch (...) {
    uses_ = nullptr;
    throw;
  }
  uses_ = nullptr;
}

}  // namespace nmt::cuda
