// This build of the library, for `compare_builds` to load.

#include "comparable_build.hpp"

#include <chrono>
#include <cstdio>
#include <exception>

#include "ddl/ddl.hpp"

namespace {

struct Opened {
  explicit Opened(std::size_t bytes)
      : context(ddl::Context::from_environment()),
        values(ddl::allocate<float>(context, bytes / sizeof(float))) {}
  ddl::Context context;
  ddl::SharedBuffer<float> values;
};

}  // namespace

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void* comparable_open(std::size_t bytes) try {
  return new Opened(bytes);
} catch (const std::exception& error) {
  std::fprintf(stderr, "compare_builds: %s\n", error.what());
  return nullptr;
}

EXPORTED double comparable_time(void* opened, std::size_t calls) try {
  auto& [context, values] = *static_cast<Opened*>(opened);
  context.communicator().barrier();
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < calls; ++i) context.communicator().all_reduce(values.span());
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / static_cast<double>(calls);
} catch (const std::exception& error) {
  std::fprintf(stderr, "compare_builds: %s\n", error.what());
  return -1;
}

EXPORTED void comparable_close(void* opened) { delete static_cast<Opened*>(opened); }
