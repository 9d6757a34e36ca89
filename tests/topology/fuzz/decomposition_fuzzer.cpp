#include <cstddef>
#include <cstdint>

#include "topology/fuzz/plan_checks.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddl::topology::check_decomposition({reinterpret_cast<const char*>(data), size});
  return 0;
}
