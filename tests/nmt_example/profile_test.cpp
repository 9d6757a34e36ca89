// The table of a step's operations. Otherwise it would name, count or add up something else than what ran.

#include "nmt_example/backend/profile.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

std::string line_of(const std::string& report, const std::string& operation) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(operation)) return line;
  return {};
}

TEST(Profile, CountsOperationsOfStepsAfterTheFirstFive) {
  Profile profile(make_cpu_backend(1));
  Memory memory(profile, Layout::contiguous);
  Random random(1);
  const Values x = random.values(8, 16), y = random.values(16, 32);
  const Tensor a = memory.tensor(x), b = memory.tensor(y), c = memory.tensor(8, 32), d = memory.tensor(8, 32);
  EXPECT_NE(profile.report().find("no step was counted"), std::string::npos);
  for (int step = 0; step < 7; ++step) {
    profile.begin_step();
    for (int times = 0; times < 3; ++times) profile.gemm(Transpose::no, Transpose::no, a, b, false, c);
    profile.add(c, d);
    profile.count_step(0.5);
    profile.zero(d);  // between steps
  }
  const Values product = memory.read(c);
  double first = 0;
  for (std::int64_t k = 0; k < 16; ++k) first += x(0, k) * y(k, 0);
  EXPECT_NEAR(product(0, 0), first, 1e-5);

  const std::string report = profile.report();
  EXPECT_NE(line_of(report, "product 8 x 32 x 16").find(" 3.0 "), std::string::npos) << report;
  EXPECT_NE(line_of(report, "add").find(" 1.0 "), std::string::npos) << report;
  EXPECT_EQ(line_of(report, "zero"), "") << report;
  EXPECT_NE(line_of(report, "outside"), "") << report;
  EXPECT_NE(line_of(report, "a step: 500.0 ms"), "") << report;
}

// Translating is one step, which would not be counted.
TEST(Profile, MayCountTheFirstStep) {
  Profile profile(make_cpu_backend(1), 0);
  Memory memory(profile, Layout::contiguous);
  const Tensor x = memory.tensor(8, 32);
  profile.begin_step();
  profile.zero(x);
  profile.count_step(0.5);
  EXPECT_NE(line_of(profile.report(), "zero"), "");
}

}  // namespace
}  // namespace nmt::test
