#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "collectives/system/descriptors.hpp"
#include "ddl/context/host_identity.hpp"
#include "ddl/tools/topo_commands.hpp"
#include "ddl/topology/discovery.hpp"
#include "topology/text.hpp"

namespace ddl::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string state_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return "missing";
  if (error) return error.message();
  if (fs::is_directory(status)) return "a directory";
  return ::access(path.c_str(), X_OK) == 0 ? "executable" : "not executable";
}

/// Finds a program as a shell does: a name without a slash is searched on PATH.
fs::path path_of(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* const variable = std::getenv("PATH");
  for (const std::string_view folder : split(variable != nullptr ? variable : "", ':')) {
    fs::path path = fs::path(folder) / program;
    if (state_of(path) == "executable") return path;
  }
  return program;
}

ordered_json program_json(const std::string& program) {
  const fs::path path = path_of(program);
  const bool is_on_path = path != program || program.find('/') != std::string::npos;
  return {{"path", path.string()}, {"state", is_on_path ? state_of(path) : "not on PATH"}};
}

/// Returns 0, or the error of listening at the address. SO_REUSEADDR makes a port with recently closed
/// connections free, as it is for servers that set it; because of it only `listen`, not `bind`, finds a port
/// that another such server uses.
int listening_error(int family, const sockaddr* address, socklen_t size) {
  const collectives::FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const bool listens = socket.valid() &&
                       ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       ::bind(socket.get(), address, size) == 0 && ::listen(socket.get(), 1) == 0;
  return listens ? 0 : errno;
}

/// Tries to listen on all addresses of this host, also those of IPv6 if it has any.
int port_error(int port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  const int error = listening_error(AF_INET6, reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (error == EADDRINUSE || error == EACCES) return error;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_ANY);
  four.sin_port = six.sin6_port;
  return listening_error(AF_INET, reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

ordered_json port_json(int port) {
  const int error = port_error(port);
  ordered_json result = {{"number", port}, {"free", error == 0}};
  if (error != 0) result["reason"] = std::generic_category().message(error);
  return result;
}

}  // namespace

std::string host_check_json(const std::string& program, int port) {
  const topology::HostDescription host = topology::discover_host();
  std::size_t cpus = 0;
  for (const auto& package : host.packages) cpus += package.cpus.size();
  ordered_json gpus = ordered_json::array();
  for (const auto& gpu : host.gpus) gpus.push_back(gpu.model);
  ordered_json result = {{"ddl_check", 1},        {"version", DDL_VERSION},
                         {"host", host.hostname}, {"identity", host_identity()},
                         {"cpus", cpus},          {"gpus", std::move(gpus)}};
  if (!program.empty()) result["program"] = program_json(program);
  if (port != 0) result["port"] = port_json(port);
  return result.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ddl::tools
