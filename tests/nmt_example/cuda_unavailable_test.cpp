// A request for CUDA where it is unavailable must say why, and what to do.

#include <gtest/gtest.h>

#include "ddl/error.hpp"
#include "nmt_example/backend/backend.hpp"
#include "support/thrown_error.hpp"

namespace nmt {
namespace {

void expect_reason(const std::string& message) {
#ifdef DDL_HAVE_CUDA
  // With devices, the message gives their number; without, CUDA's error.
  const bool has_reason = message.find("no CUDA device can be used") != std::string::npos ||
                          message.find("CUDA device 1000 does not exist") != std::string::npos;
  EXPECT_TRUE(has_reason) << message;
#else
  EXPECT_NE(message.find("built without CUDA"), std::string::npos) << message;
  EXPECT_NE(message.find("DDL_WITH_CUDA=ON"), std::string::npos) << message;
#endif
}

TEST(CudaBackend, SaysWhyADeviceCannotBeHad) {
  expect_reason(ddl::test::message_of(ddl::ErrorCode::unsupported, [] { make_cuda_backend(1000); }));
}

TEST(CudaBackend, CountsDevicesOrSaysWhyThereAreNone) {
  try {
    EXPECT_GE(cuda_devices(), 1);
  } catch (const ddl::Error& error) {
    EXPECT_EQ(error.code(), ddl::ErrorCode::unsupported);
    expect_reason(error.what());
    EXPECT_NE(std::string(error.what()).find("--device=cpu"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace nmt
