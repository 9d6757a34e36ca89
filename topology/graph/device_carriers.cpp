#include "ddl/topology/device_carriers.hpp"

#include <fmt/format.h>

#include "topology/parse_whole.hpp"
#include "topology/refuse.hpp"

namespace ddl::topology {

std::string to_string(const DeviceCarriers& carriers) {
  std::string text;
  const auto add = [&](bool is_there, const std::string& name) {
    if (is_there) text += (text.empty() ? "" : ",") + name;
  };
  add(carriers.exchange,
      carriers.one_shot_bytes == 0 ? "cuda_ipc" : fmt::format("cuda_ipc:{}", carriers.one_shot_bytes));
  add(carriers.nccl, "nccl");
  add(carriers.network, "network");
  add(carriers.host_memory, "host_memory");
  return text;
}

DeviceCarriers device_carriers_from(std::string_view text) {
  DeviceCarriers carriers;
  for (const std::string_view item : split(text, ',')) {
    const std::string_view name = item.substr(0, item.find(':'));
    bool* const known = name == "cuda_ipc"      ? &carriers.exchange
                        : name == "nccl"        ? &carriers.nccl
                        : name == "network"     ? &carriers.network
                        : name == "host_memory" ? &carriers.host_memory
                                                : nullptr;
    bool is_fine = known != nullptr && !*known;
    if (is_fine && name.size() < item.size()) {
      const auto bytes = parse_whole<decltype(carriers.one_shot_bytes)>(item.substr(name.size() + 1));
      is_fine = known == &carriers.exchange && bytes;
      carriers.one_shot_bytes = bytes.value_or(0);
    }
    if (!is_fine) {
      refuse(
          "found '{}', expected carriers between GPUs, each once, with commas between: "
          "cuda_ipc (with the most bytes of one_shot, as in cuda_ipc:262144), nccl, "
          "network, host_memory",
          text.substr(0, 60));
    }
    *known = true;
  }
  return carriers;
}

}  // namespace ddl::topology
