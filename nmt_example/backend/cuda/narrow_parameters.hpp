#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "nmt_example/backend/cuda/kernels.hpp"
#include "nmt_example/backend/tensor.hpp"

namespace nmt::cuda {

/// 16-bit copies of parameters, which products need. Each stays where it is, so that recorded work may use
/// it; rows have an `aligned_stride`. Not thread-safe.
class NarrowParameters {
 public:
  using Place = std::tuple<const void*, std::int64_t, std::int64_t>;  // data, rows, columns
  using Places = std::set<Place>;

  /// The copy, brought up to date on the stream if the parameter has changed since.
  Tensor copy_of(const Tensor& parameter, ddl::DataType type, cudaStream_t stream);
  [[nodiscard]] std::size_t bytes() const;
  /// The copies that lie within these values, [1, elements], ascending and disjoint. They are now to be
  /// updated with those of the values that change.
  std::vector<CopiedRange> updated_with(const Tensor& values);
  /// To be called when parameters have got other values. Copies that were updated with them are kept.
  void forget() noexcept;
  /// Runs `work` with the copies of `places` brought up to date, and adds what it uses to these. If it is
  /// recorded its second time, the graph contains no conversions.
  void with_copies_of(Places& places, cudaStream_t stream, const std::function<void()>& work);

 private:
  struct Copy {
    Tensor parameter, narrow;
    std::shared_ptr<void> memory;
    std::uint64_t version = 0;
    bool is_updated = false;  // with the parameter
  };

  void update(Copy& copy, cudaStream_t stream) const;

  std::map<Place, Copy> copies_;
  Places* uses_ = nullptr;  // of the work that runs
  std::uint64_t version_ = 1;
};

}  // namespace nmt::cuda
