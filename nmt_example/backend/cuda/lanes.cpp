#include "nmt_example/backend/cuda/lanes.hpp"

#include "nmt_example/backend/cuda/check.hpp"

namespace nmt::cuda {
namespace {

/// Work that is queued later in `waiting` begins when what is queued in `lane` has ended.
void wait_for(const Lane& lane, const Lane& waiting) {
  check(cudaEventRecord(lane.reached.get(), lane.stream.get()), "cudaEventRecord");
  check(cudaStreamWaitEvent(waiting.stream.get(), lane.reached.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace

/// The current lane, which is number 0, and others beside it, until its end, when the current one is that
/// again.
class Lanes::Fork {
 public:
  Fork(Lanes& lanes, std::size_t count) : lanes_(lanes), origin_(*lanes.current_), first_(origin_.taken) {
    while (origin_.beside.size() < first_ + count - 1) {
      origin_.beside.push_back(std::make_unique<Lane>());
      ++lanes_.count_;
    }
    origin_.taken += count - 1;
  }
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;
  ~Fork() {
    lanes_.current_ = &origin_;
    origin_.taken = first_;
  }

  [[nodiscard]] Lane& operator[](std::size_t n) const {
    return n == 0 ? origin_ : *origin_.beside[first_ + n - 1];
  }
  void enter(std::size_t n) const { lanes_.current_ = &(*this)[n]; }

 private:
  Lanes& lanes_;
  Lane& origin_;
  std::size_t first_;
};

void Lanes::side_by_side(const std::function<void()>& first, const std::function<void()>& second) {
  const Fork fork(*this, 2);
  wait_for(fork[0], fork[1]);
  first();
  fork.enter(1);
  second();
  wait_for(fork[1], fork[0]);
}

/// Goes from chunk to chunk, so that each wait is for what was queued just before it. The last layer ends
/// after all others.
void Lanes::wavefront(std::size_t layers, std::size_t chunks,
                      const std::function<void(std::size_t, std::size_t)>& work) {
  const Fork fork(*this, layers);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      if (layer > 0) wait_for(fork[layer - 1], fork[layer]);
      fork.enter(layer);
      work(layer, chunk);
    }
  }
  if (layers > 1) wait_for(fork[layers - 1], fork[0]);
}

}  // namespace nmt::cuda
