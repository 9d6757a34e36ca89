// 3 GiB of u8, more than 2^31 elements: an all-reduce and a broadcast in place, registered memory and plain.
//   mpirun -n 2 large_count_program [GiB]
// The exit status is 77, for "skipped", where there is less than 16 GiB of memory free.

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "ddl/ddl.hpp"
#include "ddl/shared_buffer.hpp"

namespace {

constexpr std::size_t gib = std::size_t{1} << 30U;
constexpr std::size_t needed = 16 * gib;
constexpr int skipped = 77;

std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::size_t kib = 0;
  std::string unit;
  while (file >> name >> kib >> unit) {
    if (name == "MemAvailable:") return kib << 10U;
  }
  return 0;
}

std::uint8_t value_of(int rank, std::size_t i) {
  // A period that no cut of the buffer is a multiple of.
  return static_cast<std::uint8_t>((i % 251 + i / gib * 31 + static_cast<std::size_t>(rank) * 17) % 120);
}

void fill(std::uint8_t* data, std::size_t count, int rank) {
  for (std::size_t i = 0; i < count; ++i) data[i] = value_of(rank, i);
}

/// Throws, naming the first element that differs.
void expect(const char* what, const std::uint8_t* data, std::size_t count,
            const std::function<std::uint8_t(std::size_t)>& right) {
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i] == right(i)) continue;
    throw ddl::Error(ddl::ErrorCode::internal, fmt::format("{}: element {} of {}: found {}, expected {}",
                                                           what, i, count, data[i], right(i)));
  }
}

void exchange(ddl::Context& context, std::uint8_t* data, std::size_t count) {
  ddl::Communicator& communicator = context.communicator();
  const int last = context.size() - 1;
  fill(data, count, context.rank());
  communicator.all_reduce(std::span(data, count), ddl::ReduceOp::sum);
  expect("all_reduce", data, count, [&](std::size_t i) {
    int sum = 0;
    for (int rank = 0; rank <= last; ++rank) sum += value_of(rank, i);
    return static_cast<std::uint8_t>(sum);
  });
  fill(data, count, context.rank());
  communicator.broadcast(std::span(data, count), last);
  expect("broadcast", data, count, [&](std::size_t i) { return value_of(last, i); });
}

}  // namespace

int main(int arguments, char** words) {
  return ddl::Context::run_from_environment([&](ddl::Context& context) {
    const std::size_t count = gib * (arguments > 1 ? static_cast<std::size_t>(std::atoi(words[1])) : 3);
    // Rank 0 alone looks: the others may have taken memory by the time they do.
    const bool fits = context.broadcast_string(available_memory() >= needed ? "yes" : "no") == "yes";
    if (!fits) {
      if (context.is_root()) fmt::print("SKIPPED: needs {} GiB of free memory\n", needed / gib);
      return skipped;
    }
    {
      const auto shared = ddl::allocate<std::uint8_t>(context, count);
      exchange(context, shared.data(), count);
    }
    {
      void* const plain = mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (plain == MAP_FAILED) throw ddl::Error(ddl::ErrorCode::internal, "mmap failed");
      exchange(context, static_cast<std::uint8_t*>(plain), count);
      munmap(plain, count);
    }
    if (context.is_root()) fmt::print("{} bytes: right\n", count);
    return 0;
  });
}
