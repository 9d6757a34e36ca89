// An all-reduce and a broadcast in place of 3 GiB of u8, more than 2^31 elements, in registered and plain
// memory.
//   mpirun -n 2 large_count_program [GiB]
// The exit status is 77 ("skipped") with less than 16 GiB of free memory.

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

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

/// The ranks' inputs and the expected results: blocks of four kinds in turn, of a length that divides no cut
/// of a buffer.
class Blocks {
 public:
  /// The sum of the inputs of ranks `first` to `last`, which are 0 to 119 each.
  Blocks(int first, int last) {
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      kinds_[kind].resize(length);
      for (int rank = first; rank <= last; ++rank) {
        for (std::size_t i = 0; i < length; ++i) {
          constexpr std::size_t most = 120;
          kinds_[kind][i] +=
              static_cast<std::uint8_t>((i % 251 + kind * 31 + static_cast<std::size_t>(rank) * 17) % most);
        }
      }
    }
  }

  void write(std::span<std::uint8_t> to) const {
    for (std::size_t at = 0; at < to.size(); at += length) {
      std::memcpy(&to[at], kind(at).data(), std::min(length, to.size() - at));
    }
  }

  /// Throws, with the first element that differs.
  void expect(const char* what, std::span<const std::uint8_t> found) const {
    for (std::size_t at = 0; at < found.size(); at += length) {
      const std::size_t size = std::min(length, found.size() - at);
      const std::uint8_t* const right = kind(at).data();
      if (std::memcmp(&found[at], right, size) == 0) continue;
      const std::size_t i =
          static_cast<std::size_t>(std::mismatch(right, right + size, &found[at]).first - right);
      throw ddl::Error(ddl::ErrorCode::internal,
                       fmt::format("{}: element {} of {}: found {}, expected {}", what, at + i, found.size(),
                                   found[at + i], right[i]));
    }
  }

 private:
  static constexpr std::size_t length = 251 * 4099;
  [[nodiscard]] const std::vector<std::uint8_t>& kind(std::size_t at) const {
    return kinds_[at / length % kinds_.size()];
  }

  std::array<std::vector<std::uint8_t>, 4> kinds_;
};

void exchange(ddl::Context& context, std::span<std::uint8_t> data) {
  ddl::Communicator& communicator = context.communicator();
  const int last = context.size() - 1;
  const Blocks own(context.rank(), context.rank());
  own.write(data);
  communicator.all_reduce(data, ddl::ReduceOp::sum);
  Blocks(0, last).expect("all_reduce", data);
  own.write(data);
  communicator.broadcast(data, last);
  Blocks(last, last).expect("broadcast", data);
}

}  // namespace

int main(int arguments, char** words) {
  return ddl::Context::run_from_environment([&](ddl::Context& context) {
    const std::size_t count = gib * (arguments > 1 ? static_cast<std::size_t>(std::atoi(words[1])) : 3);
    // Only rank 0 checks, because ranks that are ahead may already have allocated memory.
    const bool fits = context.broadcast_string(available_memory() >= needed ? "yes" : "no") == "yes";
    if (!fits) {
      if (context.is_root()) fmt::print("SKIPPED: needs {} GiB of free memory\n", needed / gib);
      return skipped;
    }
    {
      const auto shared = ddl::allocate<std::uint8_t>(context, count);
      exchange(context, shared.span());
    }
    {
      void* const plain = mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (plain == MAP_FAILED) throw ddl::Error(ddl::ErrorCode::internal, "mmap failed");
      exchange(context, {static_cast<std::uint8_t*>(plain), count});
      munmap(plain, count);
    }
    if (context.is_root()) fmt::print("{} bytes: right\n", count);
    return 0;
  });
}
