#pragma once

#include <array>
#include <span>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// How a plan uses TCP between hosts.
struct TcpUse {
  int dimensions = 0;
  bool is_ring = true;         ///< Each host sends to one other host.
  bool all_ranks_send = true;  ///< Of each host.
};

/// What a step costs besides its links' latency and bandwidth. The prediction and the simulator share it.
struct CostModel {
  double step_overhead = 0.2;  ///< us for which a rank is busy to start a send; its sends take turns.
  double cpu_reduction = 20;   ///< GB/s (1e9 bytes of result) at which a `cpu` device reduces or copies.
  double gpu_reduction = 500;  ///< The same of a `gpu`.
  /// us for which a message between `cpu` devices of two hosts keeps each network link on its way busy,
  /// besides its bytes: system calls and interrupts of TCP, which a host's ranks do for all of them on few
  /// cores.
  double cpu_network_message = 2;

  /// Between GPUs whose topology says what carries: us for which a group's call takes longer than its links,
  /// for launches, meetings, copies to the host and the thread that drives a network. Estimates: no machine
  /// has been measured.
  double exchange_call = 6;
  double network_call = 20;
  double network_message = 3;  ///< us for which the thread that drives it is busy with a message.
  double host_memory_call = 40;
  /// NCCL takes the best of its protocols. Figures of its model for rings (src/graph/tuning.cc): us a
  /// call, us a step inside a host (NVLink) and between hosts, and the part of the links' bandwidth that is
  /// data.
  struct NcclProtocol {
    double call;
    double step_inside;
    double step_between;
    double bandwidth;

    friend bool operator==(const NcclProtocol&, const NcclProtocol&) = default;
  };
  std::array<NcclProtocol, 3> nccl = {
      {{6.6, 0.6, 2.7, 0.5}, {14, 1.9, 4, 120.0 / 128}, {8.4, 3.4, 14, 1}}};  // LL, LL128, Simple

  /// Factors by which TCP between hosts of CPUs is slower than links say. Measured on 4x4 ranks over 1 Gb/s:
  /// a host that sends to one other host all the time keeps its link busy (rings: 0.87 to 1.0 of its rate,
  /// anything else 0.7 to 0.85); flows of all 4 ranks are 10% to 20% faster than those of one or two, because
  /// one flow pauses whenever its process waits for a core; and so does a flow with a chunk or two to send
  /// (1 MiB in 4 chunks: 10% faster than in 2).
  double tcp_exchange = 1.15;
  double tcp_few_flows = 1.1;
  double tcp_one_chunk = 0.2;  ///< Added to 1, divided by the chunks.

  /// For messages of `bytes` in `chunks`; 1 below 128 KiB.
  [[nodiscard]] double tcp_slowdown(const TcpUse& use, double bytes, int chunks) const noexcept {
    if (use.dimensions == 0 || bytes < 128 << 10) return 1;
    return (use.dimensions == 1 && use.is_ring ? 1 : tcp_exchange) *
           (use.all_ranks_send ? 1 : tcp_few_flows) * (bytes < 512 << 10 ? 1 : 1 + tcp_one_chunk / chunks);
  }

  [[nodiscard]] double reduction_us(NodeKind device, double bytes) const noexcept {
    return bytes / ((device == NodeKind::gpu ? gpu_reduction : cpu_reduction) * 1e3);
  }
  friend bool operator==(const CostModel&, const CostModel&) = default;
};

/// The link that a device's reductions share with its transfers: the half-duplex link to its memory of a
/// `cpu`, because the core that reduces is the one that moves the bytes, one after the other. -1: none, as on
/// a `gpu`.
int core_link(const Topology& topology, int device_node);

/// Whether bytes from a device to another one are moved by the receiver's core alone, from memory to memory:
/// both are `cpu` devices with a `core_link`, and that is all that is on the way. A copy then takes its bytes
/// over the receiver's link. What it need not write anywhere (it is reduced while it is read) or need not
/// read (the sender of a range gets it back reduced, written by the one who reduces it) takes half of that.
bool is_in_memory(const Topology& topology, int from_node, int to_node, std::span<const Channel> route);

/// Where ranks are: `placement[r]` is the index into `Topology::devices()` of rank r. One rank a device.
using Placement = std::vector<int>;

/// The first `ranks` devices in order: fills one host after the other.
Placement place_by_host(const Topology& topology, int ranks);
/// Deals the ranks out: rank r on the next host, in turn, that has a device left. Uses the fewest hosts that
/// hold `ranks` devices, in order. Both throw `invalid_argument` naming both numbers if there are more ranks
/// than devices, or less than one rank.
Placement place_round_robin(const Topology& topology, int ranks);
/// Throws `invalid_argument` for a placement that is empty, names a device that does not exist, or one twice.
void require_valid(const Topology& topology, const Placement& placement);

}  // namespace ddl::topology
