// What is said where cuDNN is missing. Needs no device. If this failed, a program would not start, or not say
// what to do, where cuDNN is not installed.

#include "nmt_example/backend/cuda/cudnn_library.hpp"

#include <gtest/gtest.h>

#include "support/thrown_error.hpp"

namespace nmt::cuda {
namespace {

TEST(CudnnLibrary, HasWhatIsUsedOfIt) {
  try {
    EXPECT_NE(CudnnLibrary::get().forward, nullptr);
  } catch (const ddl::Error& error) {
    GTEST_SKIP() << error.what();
  }
}

TEST(CudnnLibrary, SaysWhatToDoWhereItCannotBeLoaded) {
  const auto load = [](const char* name) { return [name] { CudnnLibrary library(name); }; };
  ddl::test::expect_error(ddl::ErrorCode::unsupported,
                          {"cuDNN", "libcudnn.so.0", "LD_LIBRARY_PATH", "--rnn=loop"}, load("libcudnn.so.0"));
  ddl::test::expect_error(ddl::ErrorCode::unsupported, {"cudnnCreate", "--rnn=loop"}, load("libm.so.6"));
}

}  // namespace
}  // namespace nmt::cuda
