// Whether NCCL is found where it is, and what is said where it is not. Needs no device.

#include "ddl/device/nccl/nccl_library.hpp"

#include <gtest/gtest.h>

#include <string>

#include "ddl/error.hpp"

namespace ddl::device {
namespace {

TEST(NcclLibrary, IsFoundOrSaysWhatToDo) {
  try {
    const NcclLibrary& nccl = NcclLibrary::get();
    EXPECT_NE(nccl.version().find('.'), std::string::npos);
    EXPECT_NE(nccl.text_of(ncclInvalidArgument, nullptr), "");
    EXPECT_EQ(&NcclLibrary::get(), &nccl);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    const std::string message = error.what();
    EXPECT_NE(message.find("libnccl.so.2"), std::string::npos) << message;
    EXPECT_NE(message.find("LD_LIBRARY_PATH"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace ddl::device
