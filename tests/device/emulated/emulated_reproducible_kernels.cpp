// The functions of reproducible_kernels.hpp for emulated devices: element after element.

#include "collectives/device/reproducible_body.hpp"
#include "collectives/device/reproducible_kernels.hpp"
#include "device/emulated/emulated_cuda.hpp"

namespace ddl::collectives::device {
namespace {

template <ExactStep step, typename F>
void work_off(const ExactPass& pass) {
  for (std::uint64_t run = 0; run < pass.runs; ++run) {
    for (std::uint64_t at = 0; at < pass.length; ++at) take_step<step, F>(pass, run, at);
  }
}

using Body = void (*)(const ExactPass&);
template <ExactStep step, typename F>
struct BodyOf {
  static constexpr Body value = work_off<step, F>;
};
constexpr auto bodies = exact_kernels_of_all<Body, BodyOf>();

}  // namespace

cudaError_t launch_exact_step(ExactStep step, DataType type, const ExactPass& pass, cudaStream_t stream) {
  const Body body = bodies[index_of_float(type)][static_cast<std::size_t>(step)];
  return emulated_cuda::launch(stream, [=](int) { body(pass); });
}

cudaError_t load_exact_kernels() { return cudaDeviceSynchronize(); }

}  // namespace ddl::collectives::device
