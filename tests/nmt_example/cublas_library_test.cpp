// When cuBLAS is loaded, and what is said where it is missing. Needs no device. If these failed, every rank
// of a run on CPUs would take 150 MB more memory, or a program would not start where cuBLAS is not installed.

#include "nmt_example/backend/cuda/cublas_library.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "nmt_example/backend/backend.hpp"
#include "support/thrown_error.hpp"

namespace nmt::cuda {
namespace {

bool is_mapped(const std::string& library) {
  std::ostringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  return maps.str().find(library) != std::string::npos;
}

TEST(CublasLibrary, IsLoadedWhenItIsAskedFor) {
  EXPECT_NE(make_cpu_backend(1), nullptr);
  EXPECT_FALSE(is_mapped("libcublas"));
  try {
    EXPECT_STREQ(CublasLibrary::get().status_name(CUBLAS_STATUS_ARCH_MISMATCH),
                 "CUBLAS_STATUS_ARCH_MISMATCH");
  } catch (const ddl::Error& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_TRUE(is_mapped("libcublas"));
}

TEST(CublasLibrary, SaysWhatToDoWhereItCannotBeLoaded) {
  const auto load = [](const char* name) { return [name] { CublasLibrary library(name); }; };
  ddl::test::expect_error(ddl::ErrorCode::unsupported,
                          {"cuBLAS", "libcublas.so.0", "LD_LIBRARY_PATH", "--device=cpu"},
                          load("libcublas.so.0"));
  ddl::test::expect_error(ddl::ErrorCode::unsupported, {"cublasCreate", "--device=cpu"}, load("libm.so.6"));
}

}  // namespace
}  // namespace nmt::cuda
