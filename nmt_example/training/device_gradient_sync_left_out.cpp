#include "ddl/error.hpp"
#include "nmt_example/training/gradient_sync.hpp"

namespace nmt {

std::unique_ptr<GradientSync> make_device_gradient_sync(ddl::Context&, const Options&, Backend&, Model&) {
  throw ddl::Error(ddl::ErrorCode::unsupported, "this program was built without CUDA").as_agreed();
}

}  // namespace nmt
