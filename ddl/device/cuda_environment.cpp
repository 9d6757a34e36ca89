#include "ddl/device/cuda_environment.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

#include "ddl/device.hpp"

namespace ddl {
namespace {

constexpr const char* connections = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr const char* loading = "CUDA_MODULE_LOADING";

std::string_view variable(const char* name) noexcept {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void set_cuda_environment() {
  constexpr int unless_it_is_set = 0;
  setenv(connections, std::to_string(device::most_connections).c_str(), unless_it_is_set);
  setenv(loading, device::eager, unless_it_is_set);
}

namespace device {

bool has_cuda_environment() noexcept {
  return std::atoi(variable(connections).data()) >= most_connections && variable(loading) == eager;
}

}  // namespace device
}  // namespace ddl
