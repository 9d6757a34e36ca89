// Prints a hash of the results of reproducible reductions of random floats on all processes of a job, which
// must not depend on hosts, network and plans: mpirun -n N reproducible_program
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "ddl/ddl.hpp"
#include "ddl/hash.hpp"

namespace {

void add(ddl::Fnv& hash, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) hash.add(static_cast<std::uint8_t>(byte));
}

/// Numbers of many magnitudes, whose sums depend on the order of additions.
template <typename T>
std::vector<T> numbers(int rank, std::size_t count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 1000003 + count);
  std::vector<T> result(count);
  for (T& number : result) {
    const auto exponent = static_cast<int>(random() % 16) - 8;
    number = T(static_cast<float>(std::ldexp(static_cast<double>(random() % 2000) - 1000, exponent - 10)));
  }
  return result;
}

template <typename T>
void reduce_all(ddl::Context& context, ddl::Fnv& hash) {
  ddl::Communicator& all = context.communicator();
  for (const std::size_t count : {std::size_t{1}, std::size_t{3001}, std::size_t{300'007}}) {
    for (const ddl::ReduceOp op : {ddl::ReduceOp::sum, ddl::ReduceOp::avg, ddl::ReduceOp::max}) {
      std::vector<T> values = numbers<T>(context.rank(), count);
      all.all_reduce(std::span(values), op);
      add(hash, std::as_bytes(std::span(values)));
    }
    std::vector<T> values = numbers<T>(context.rank(), count);
    ddl::Work work = all.all_reduce_async(std::span(values));
    work.wait();
    add(hash, std::as_bytes(std::span(values)));
  }
}

}  // namespace

int main() {
  return ddl::Context::run_from_environment([](ddl::Context& context) {
    ddl::Fnv hash;
    reduce_all<float>(context, hash);
    reduce_all<double>(context, hash);
    reduce_all<ddl::bfloat16>(context, hash);
    // All ranks have the same hash.
    std::int64_t greatest = static_cast<std::int64_t>(hash.value());
    std::int64_t least = greatest;
    context.communicator().all_reduce(std::span(&greatest, 1), ddl::ReduceOp::max);
    context.communicator().all_reduce(std::span(&least, 1), ddl::ReduceOp::min);
    if (context.is_root()) fmt::print("{:016x}{}\n", hash.value(), greatest == least ? "" : ", and others");
    return greatest == least ? 0 : 1;
  });
}
