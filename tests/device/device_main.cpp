// main of tests whose ranks are threads that share devices: sets variables that CUDA reads when it starts,
// and a deadline that ends a hang before the test's timeout.

#include <gtest/gtest.h>

#include <cstdlib>

#include "ddl/device.hpp"

int main(int count, char** arguments) {
  ddl::set_cuda_environment();
  setenv("DDL_DEADLINE", "15", 0);
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
