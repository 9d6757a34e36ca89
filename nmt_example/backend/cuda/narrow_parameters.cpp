#include "nmt_example/backend/cuda/narrow_parameters.hpp"

#include <utility>

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

std::vector<CopiedRange> NarrowParameters::updated_with(const Tensor& values) {
  std::vector<CopiedRange> ranges;
  const float* const begin = values.as<float>();
  std::int64_t end = 0;  // of the ranges
  for (auto at = copies_.lower_bound({begin, 0, 0}); at != copies_.end(); ++at) {
    Copy& copy = at->second;
    const std::int64_t first = copy.parameter.as<float>() - begin, count = copy.parameter.size();
    if (first >= values.size()) break;
    if (first < end || first + count > values.size() || count > most_copied) continue;
    if (!copy.parameter.contiguous() || copy.version != version_) continue;
    ranges.push_back({first, count, copy.narrow});
    copy.is_updated = true;
    end = first + count;
  }
  return ranges;
}

void NarrowParameters::forget() noexcept {
  ++version_;
  for (auto& [place, copy] : copies_)
    if (std::exchange(copy.is_updated, false)) copy.version = version_;
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
