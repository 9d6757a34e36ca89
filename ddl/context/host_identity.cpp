#include "ddl/context/host_identity.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>

#include "ddl/topology/as_index.hpp"

namespace ddl {

std::string machine_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string host_identity() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
  return std::string(name.data()) + "/" + machine_identity();
}

std::string usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return std::string(std::max(1U, std::thread::hardware_concurrency()), '1');
  }
  std::string mask;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) mask.append(core - mask.size(), '0') += '1';
  }
  return mask;
}

std::size_t cores_in(const std::vector<std::string>& masks) {
  std::string all;
  for (const std::string& mask : masks) {
    all.resize(std::max(all.size(), mask.size()), '0');
    for (std::size_t core = 0; core < mask.size(); ++core) {
      if (mask[core] == '1') all[core] = '1';
    }
  }
  return as_index(std::ranges::count(all, '1'));
}

bool are_crowded(const std::vector<std::string>& masks) { return cores_in(masks) < masks.size(); }

}  // namespace ddl
