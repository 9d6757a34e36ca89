// Finding NCCL, and the message if it is missing. Needs no device.

#include "ddl/device/nccl/nccl_library.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "ddl/error.hpp"

namespace ddl::device {
namespace {

/// If the library exists, all its functions must be found; a missing one would look like a machine without
/// NCCL.
TEST(NcclLibrary, IsFoundWhereItIsAndSaysWhatToDoWhereItIsNot) {
  const bool is_there = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) != nullptr;
  try {
    const NcclLibrary& nccl = NcclLibrary::get();
    EXPECT_TRUE(is_there);
    EXPECT_NE(nccl.text_of(ncclInvalidArgument, nullptr), "");
    EXPECT_EQ(&NcclLibrary::get(), &nccl);
  } catch (const Error& error) {
    EXPECT_FALSE(is_there) << error.what();
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    const std::string message = error.what();
    EXPECT_NE(message.find("libnccl.so.2"), std::string::npos) << message;
    EXPECT_NE(message.find("LD_LIBRARY_PATH"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace ddl::device
