#include "collectives/transports/network/ucx_worker.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "ddl/topology/as_index.hpp"
#include "topology/refuse.hpp"

namespace ddl::collectives {
namespace {

[[noreturn]] void refuse(const char* what, ucs_status_t status) {
  fail_with(ErrorCode::transport, "UCX: {} failed: {}", what, ucs_status_string(status));
}

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) refuse(what, status);
}

bool set_by_user(const std::string& name) { return std::getenv(("UCX_" + name).c_str()) != nullptr; }

/// The devices in UCX_NET_DEVICES, or else those in `settings`; empty if unknown.
std::vector<std::string> used_devices(const UcxSettings& settings) {
  const char* const text = std::getenv("UCX_NET_DEVICES");
  if (text == nullptr) return settings.devices;
  std::vector<std::string> devices;
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) devices.push_back(name);
  return devices == std::vector<std::string>{"all"} ? settings.devices : devices;
}

bool is_rdma(const std::string& device) { return device.find(':') != device.npos; }

/// Calls visit(socket, events) for the sockets that an epoll descriptor watches, directly or through another
/// one, and the events that it watches them for.
template <typename Visit>
void visit_sockets(int epoll, const Visit& visit) {
  std::ifstream watched(fmt::format("/proc/self/fdinfo/{}", epoll));
  for (std::string word; watched >> word;) {
    int descriptor = -1, type = 0;
    std::uint32_t events = 0;
    if (word != "tfd:" || !(watched >> descriptor >> word >> std::hex >> events >> std::dec)) continue;
    socklen_t size = sizeof(type);
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0) {
      visit(descriptor, events);
    } else if (descriptor != epoll) {
      visit_sockets(descriptor, visit);
    }
  }
}

class Configuration {
 public:
  Configuration() { check(ucp_config_read(nullptr, nullptr, &config_), "ucp_config_read"); }
  Configuration& operator=(Configuration&&) = delete;
  ~Configuration() { ucp_config_release(config_); }

  [[nodiscard]] const ucp_config_t* get() const { return config_; }
  void prefer(const std::string& name, const std::string& value) {
    if (!set_by_user(name)) {
      check(ucp_config_modify(config_, name.c_str(), value.c_str()), ("UCX_" + name + "=" + value).c_str());
    }
  }
  /// Up to UCX 1.13, a program can set a transport's option only by its name without the transport's prefix.
  void prefer_of_transport(const std::string& prefix, const std::string& name, const std::string& value) {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    ucp_get_version(&major, &minor, &release);
    const bool without_prefix = major == 1 && minor <= 13;
    if (!set_by_user(prefix + name)) prefer(without_prefix ? name : prefix + name, value);
  }

 private:
  ucp_config_t* config_ = nullptr;
};

}  // namespace

/// Delegates, so that the destructor frees what was made if a later step throws.
UcxWorker::UcxWorker(const UcxSettings& settings) : UcxWorker() {
  Configuration configuration;
  configuration.prefer("TLS", "^sm");
  if (!settings.devices.empty()) {
    configuration.prefer("NET_DEVICES", fmt::format("{}", fmt::join(settings.devices, ",")));
    if (!set_by_user("TLS")) configuration.prefer("WARN_INVALID_CONFIG", "n");  // for unusable adapters
  }
  if (const std::vector<std::string> devices = used_devices(settings); !devices.empty()) {
    if (std::none_of(devices.begin(), devices.end(), is_rdma)) {
      // Over TCP, a rendezvous for less data on a busy link costs more than the copy that it saves.
      configuration.prefer("RNDV_THRESH", "512k");
      // With the default frame of 8 KiB a message takes several frames, and links idle for a tenth of the
      // time.
      configuration.prefer_of_transport("TCP_", "TX_SEG_SIZE", "64k");
    }
  }

  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                          UCP_PARAM_FIELD_ESTIMATED_NUM_PPN | UCP_PARAM_FIELD_NAME;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  // Rings and trees have few neighbours. Given an estimate above 256, UCX does not use TCP.
  parameters.estimated_num_eps = std::min<std::size_t>(as_index(settings.ranks), 64);
  parameters.estimated_num_ppn = as_index(settings.ranks_per_host);
  parameters.name = "ddl";
  check(ucp_init(&parameters, configuration.get(), &context_), "ucp_init");

  ucp_worker_params_t worker_parameters{};
  worker_parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check(ucp_worker_create(context_, &worker_parameters, &worker_), "ucp_worker_create");
  check(ucp_worker_get_efd(worker_, &event_descriptor_), "ucp_worker_get_efd");

  ucp_address_t* own = nullptr;
  std::size_t length = 0;
  check(ucp_worker_get_address(worker_, &own, &length), "ucp_worker_get_address");
  address_.assign(reinterpret_cast<const char*>(own), length);
  ucp_worker_release_address(worker_, own);
}

void UcxWorker::shut() noexcept {
  // Receive the remaining messages, such as goodbyes, because UCX warns about messages that were not
  // received.
  constexpr int take_it = 1;
  const ucp_request_param_t plain{};
  ucp_tag_recv_info_t info;
  while (worker_ != nullptr) {
    const ucp_tag_message_h message = ucp_tag_probe_nb(worker_, 0, 0, take_it, &info);
    if (message == nullptr) break;
    const ucs_status_ptr_t request = ucp_tag_msg_recv_nbx(worker_, nullptr, 0, message, &plain);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
  if (worker_ != nullptr) ucp_worker_destroy(std::exchange(worker_, nullptr));
  if (context_ != nullptr) ucp_cleanup(std::exchange(context_, nullptr));
  event_descriptor_ = -1;
}

bool UcxWorker::carries_device_memory() const noexcept {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return context_ != nullptr && ucp_context_query(context_, &attributes) == UCS_OK &&
         (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

void UcxWorker::drain() const noexcept {
  constexpr int most_rounds = 1000;
  for (int round = 0; round < most_rounds && ucp_worker_progress(worker_) != 0; ++round) {
  }
}

void UcxWorker::shut_connections_down() const noexcept {
  visit_sockets(event_descriptor_, [](int connection, std::uint32_t) { shutdown(connection, SHUT_RDWR); });
}

bool UcxWorker::has_unsent_data() const {
  bool found = false;
  visit_sockets(event_descriptor_,
                [&](int, std::uint32_t events) { found = found || (events & EPOLLOUT) != 0; });
  return found;
}

std::string name_of(const UcxSettings& settings) {
  const std::vector<std::string>& devices = settings.devices;
  for (const char* variable : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    if (const char* value = std::getenv(variable)) return fmt::format("ucx ({}={})", variable, value);
  }
  if (devices.empty()) return "ucx";
  const bool rdma = std::any_of(devices.begin(), devices.end(), is_rdma);
  return fmt::format("ucx ({}{})", rdma ? "" : "tcp ", fmt::join(devices, " "));
}

}  // namespace ddl::collectives
