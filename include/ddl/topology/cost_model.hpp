#pragma once

#include <array>
#include <span>
#include <vector>

#include "ddl/topology/topology.hpp"

namespace ddl::topology {

/// How a plan uses TCP between hosts of CPUs.
struct TcpUse {
  int dimensions = 0;          ///< Number of the plan's dimensions between hosts.
  bool is_ring = true;         ///< Each host sends to one other host only.
  bool all_ranks_send = true;  ///< All ranks of a host send to other hosts.
};

/// Costs of steps besides their links' latency and bandwidth. Shared by the prediction and the simulator.
struct CostModel {
  double step_overhead = 0.2;  ///< us a rank is busy starting a send; one send at a time.
  double cpu_reduction = 20;   ///< GB/s (1e9 bytes of result) at which a `cpu` device reduces or copies.
  double gpu_reduction = 500;  ///< The same for a `gpu`.
  /// us that a message between `cpu` devices of two hosts occupies each network link on its route besides its
  /// bytes: TCP's system calls and interrupts, which a host's ranks share few cores for.
  double cpu_network_message = 2;

  /// us per call of the exchange kernels, besides the links' time, for launches and meetings. This and the
  /// next three apply between GPUs of a topology with carriers. They are estimates: no machine has been
  /// measured.
  double exchange_call = 6;
  double network_call = 20;      ///< us per call of a network that handles device memory.
  double network_message = 3;    ///< us the thread that drives this network is busy with a message.
  double host_memory_call = 40;  ///< us per call through page-locked host memory, for the copies.
  /// The cost of one of NCCL's protocols, of which NCCL uses the fastest. From NCCL's own model of rings
  /// (src/graph/tuning.cc).
  struct NcclProtocol {
    double call;          ///< us per call.
    double step_inside;   ///< us per step inside a host (NVLink).
    double step_between;  ///< us per step between hosts.
    double bandwidth;     ///< Share of the links' bandwidth that carries data, 0 to 1.

    /// Memberwise equality.
    friend bool operator==(const NcclProtocol&, const NcclProtocol&) = default;
  };
  /// NCCL's protocols LL, LL128 and Simple.
  std::array<NcclProtocol, 3> nccl = {{{6.6, 0.6, 2.7, 0.5}, {14, 1.9, 4, 120.0 / 128}, {8.4, 3.4, 14, 1}}};

  /// Factor by which TCP between hosts of CPUs is slower than the links' figures if a host sends to several
  /// others. This and the next two are measured on 4x4 ranks over 1 Gb/s. A host that sends to one other host
  /// all the time keeps its link busy (rings reach 0.87 to 1.0 of its rate, other patterns 0.7 to 0.85).
  /// Flows of all 4 ranks are 10% to 20% faster than those of one or two, because a flow pauses whenever its
  /// process waits for a core. So does a flow with only a chunk or two to send (1 MiB in 4 chunks: 10% faster
  /// than in 2).
  double tcp_exchange = 1.15;
  double tcp_few_flows = 1.1;  ///< Factor if not all ranks of a host send.
  double tcp_one_chunk = 0.2;  ///< Divided by the number of chunks and added to 1: a factor from 512 KiB on.

  /// The factor by which a collective on `bytes` bytes in `chunks` chunks takes longer over TCP than the
  /// links' figures say; 1 below 128 KiB and without TCP.
  [[nodiscard]] double tcp_slowdown(const TcpUse& use, double bytes, int chunks) const noexcept {
    if (use.dimensions == 0 || bytes < 128 << 10) return 1;
    return (use.dimensions == 1 && use.is_ring ? 1 : tcp_exchange) *
           (use.all_ranks_send ? 1 : tcp_few_flows) * (bytes < 512 << 10 ? 1 : 1 + tcp_one_chunk / chunks);
  }

  /// us a device of this kind takes to reduce or copy `bytes` bytes of result.
  [[nodiscard]] double reduction_us(NodeKind device, double bytes) const noexcept {
    return bytes / ((device == NodeKind::gpu ? gpu_reduction : cpu_reduction) * 1e3);
  }
  /// Memberwise equality.
  friend bool operator==(const CostModel&, const CostModel&) = default;
};

/// The index of the link that a device's reductions share with its transfers: for a `cpu`, the half-duplex
/// link to its memory, because one core both reduces and moves the bytes. -1: none, as for a `gpu`.
/// `device_node`: a node's index.
int core_link(const Topology& topology, int device_node);

/// Whether the receiver's core alone moves bytes between two devices, from memory to memory: both are `cpu`
/// devices with a `core_link`, and `route`, the route between them, has no other link. A copy then occupies
/// the receiver's link for its bytes. A receive that need not write them (it reduces while it reads) or need
/// not read them (the reducing rank writes the result back to the range's sender) occupies it for half of
/// that.
bool is_in_memory(const Topology& topology, int from_node, int to_node, std::span<const Channel> route);

/// The devices of ranks: `placement[r]` is rank r's index into `Topology::devices()`. At most one rank per
/// device.
using Placement = std::vector<int>;

/// Places `ranks` ranks on the first devices, one host after the other. Throws `invalid_argument`, naming
/// both numbers, for more ranks than devices or less than one rank.
Placement place_by_host(const Topology& topology, int ranks);
/// Places each rank on the next host, in turn, that has a free device. Uses the first hosts only, as many as
/// `ranks` devices need. Throws as `place_by_host` does.
Placement place_round_robin(const Topology& topology, int ranks);
/// Throws `invalid_argument` if the placement is empty, or names a device that does not exist or names one
/// twice.
void require_valid(const Topology& topology, const Placement& placement);

}  // namespace ddl::topology
