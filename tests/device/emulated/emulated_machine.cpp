// The devices and their properties.

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

#include "device/emulated/emulated_cuda.hpp"
#include "device/emulated/emulated_errors.hpp"

namespace emulated_cuda {
namespace {

Turns turns_of(const std::string& name) {
  static const std::map<std::string, Turns> names = {
      {"all", Turns::all}, {"oldest_first", Turns::oldest_first}, {"newest_first", Turns::newest_first}};
  return names.at(name);
}

Machine from_environment() {
  Machine machine;
  const auto integer = [](int& of) { return [&of](const std::string& value) { of = std::stoi(value); }; };
  const auto size = [](std::size_t& of) {
    return [&of](const std::string& value) { of = std::stoull(value); };
  };
  const auto flag = [](bool& of) { return [&of](const std::string& value) { of = value == "1"; }; };
  const std::map<std::string, std::function<void(const std::string&)>> words = {
      {"devices", integer(machine.devices)},
      {"bytes", size(machine.bytes)},
      {"peers", flag(machine.peers)},
      {"driver", integer(machine.driver)},
      {"multiprocessors", integer(machine.multiprocessors)},
      {"blocks_per_multiprocessor", integer(machine.blocks_per_multiprocessor)},
      {"connections", integer(machine.connections)},
      {"launches", size(machine.launches)},
      {"pitch", size(machine.pitch)},
      {"creation_waits", flag(machine.creation_waits)},
      {"refused", [&](const std::string& value) { machine.refused = value; }},
      {"ucx", flag(machine.ucx)},
      {"unlike", integer(machine.unlike)},
      {"turns", [&](const std::string& value) { machine.turns = turns_of(value); }},
  };
  const char* const variable = std::getenv("EMULATED_CUDA");
  std::istringstream stream(variable == nullptr ? "" : variable);
  for (std::string word; std::getline(stream, word, ',');) {
    const auto at = word.find('=');
    const auto found = words.find(word.substr(0, at));
    if (found == words.end() || at == std::string::npos)
      throw std::runtime_error("EMULATED_CUDA: unknown word " + word);
    found->second(word.substr(at + 1));
  }
  return machine;
}

}  // namespace

Machine& machine() {
  static auto* const own = new Machine(from_environment());
  return *own;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (machine().driver < CUDART_VERSION) return result(cudaErrorInsufficientDriver);
  if (machine().devices == 0) return result(cudaErrorNoDevice);
  *count = machine().devices;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = obstacle("cudaGetDeviceProperties"); error != cudaSuccess)
    return result(error);
  const bool is_unlike = device == machine().unlike;
  *properties = {};
  fmt::format_to_n(properties->name, sizeof properties->name - 1, "{}",
                   is_unlike ? "Other GPU" : "Emulated GPU");
  properties->major = is_unlike ? 8 : 9;
  properties->multiProcessorCount = machine().multiprocessors;
  properties->totalGlobalMem = machine().bytes;
  properties->memPitch = machine().pitch;
  properties->pciBusID = device + 1;
  std::memcpy(properties->uuid.bytes, "emulated device", 16);
  properties->uuid.bytes[15] = static_cast<char>(device + 1);
  return cudaSuccess;
}

/// Network adapters write to emulated device memory like the host, so no flush is needed.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (const cudaError_t error = obstacle("cudaDeviceGetAttribute"); error != cudaSuccess)
    return result(error);
  switch (attribute) {
    case cudaDevAttrGPUDirectRDMAFlushWritesOptions:
      *value = cudaFlushGPUDirectRDMAWritesOptionHost;
      break;
    case cudaDevAttrMaxPitch:
      *value = static_cast<int>(machine().pitch);
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget,
                                               cudaFlushGPUDirectRDMAWritesScope) {
  return result(obstacle("cudaDeviceFlushGPUDirectRDMAWrites"));
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  if (const cudaError_t error = obstacle("cudaDeviceGetPCIBusId"); error != cudaSuccess) return result(error);
  *fmt::format_to_n(text, static_cast<std::size_t>(bytes) - 1, "0000:{:02x}:00.0", device + 1).out = '\0';
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = machine().peers ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) {
  if (const cudaError_t error = obstacle("cudaDeviceEnablePeerAccess"); error != cudaSuccess)
    return result(error);
  return result(machine().peers ? cudaSuccess : cudaErrorPeerAccessUnsupported);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
