#include <cstddef>
#include <cstdint>

#include "topology/fuzz/measurement_checks.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddl::topology::check_measurements_from_json({reinterpret_cast<const char*>(data), size});
  return 0;
}
