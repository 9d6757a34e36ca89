#include "ddl/error.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/backend/device_link.hpp"

namespace nmt {
namespace {

[[noreturn]] void left_out() {
  throw ddl::Error(ddl::ErrorCode::unsupported,
                   "this program was built without CUDA: its build found no nvcc and CUDA toolkit, or was "
                   "configured with -DDDL_WITH_CUDA=OFF. To go on, build with -DDDL_WITH_CUDA=ON, which says "
                   "what is missing, or use --device=cpu.");
}

}  // namespace

int cuda_devices() { left_out(); }

std::size_t free_device_memory() { left_out(); }

std::unique_ptr<Backend> make_cuda_backend(int, const CudaPrecision&) { left_out(); }

std::unique_ptr<DeviceLink> open_device_link(ddl::Context&) {
  throw ddl::Error(ddl::ErrorCode::unsupported, "this program was built without CUDA").as_agreed();
}

}  // namespace nmt
