// This build of the library, for `compare_builds` to load.

#include "comparable_build.hpp"

#include <cstdio>
#include <exception>

#include "perf/timed_all_reduce.hpp"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void* comparable_open(std::size_t bytes) try {
  return new perf::TimedAllReduce(ddl::ContextOptions::from_environment(), bytes);
} catch (const std::exception& error) {
  std::fprintf(stderr, "compare_builds: %s\n", error.what());
  return nullptr;
}

EXPORTED double comparable_time(void* opened, std::size_t calls) try {
  return static_cast<perf::TimedAllReduce*>(opened)->time(calls);
} catch (const std::exception& error) {
  std::fprintf(stderr, "compare_builds: %s\n", error.what());
  return -1;
}

EXPORTED void comparable_close(void* opened) { delete static_cast<perf::TimedAllReduce*>(opened); }
