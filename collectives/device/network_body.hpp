#pragma once

#include "collectives/device/exchange_body.hpp"

/// What devices compute in collectives over a network. `Block`: see exchange_body.hpp.
namespace ddl::collectives::device {

/// target[i] = (sources[0][i] op sources[1][i]) / divisor; with one operand, sources[0][i] / divisor.
struct Combination {
  const std::byte* sources[2] = {};
  std::byte* target = nullptr;
  int operands = 2;
  int divisor = 1;
  std::uint64_t elements = 0;
};

/// Uses an exchange in which one rank has all operands.
template <typename T, typename Op, typename Block>
DDL_HOST_DEVICE void combine(Block& block, const Combination& combination, Meeting& meeting) {
  if (block.thread() == 0) {
    const auto target = reinterpret_cast<std::uintptr_t>(combination.target);
    for (int i = 0; i < combination.operands; ++i) {
      meeting.sources[i] = combination.sources[i];
      const auto source = reinterpret_cast<std::uintptr_t>(combination.sources[i]);
      meeting.in_packs[i] = (source | target) % pack_bytes == 0;
    }
    meeting.targets[0] = combination.target;
  }
  block.sync();
  Exchange e;
  e.ranks = combination.operands;
  e.sources = (1U << static_cast<unsigned>(combination.operands)) - 1;
  e.targets = 1;
  e.elements = combination.elements;
  e.divisor = combination.divisor;
  transfer<T, Op>(block, e, meeting);
}

/// f32 values and the same values in 16 bits. In `values` and `residual`, `pieces` runs of `length` begin
/// `stride` apart; packed values are contiguous.
struct WirePass {
  float* values = nullptr;
  float* residual = nullptr;  ///< Rounding errors, read and then replaced; null to drop them.
  std::byte* packed = nullptr;
  std::uint64_t pieces = 1;
  std::uint64_t length = 0;
  std::uint64_t stride = 0;
};

/// packed = values + residual, rounded to `T`, or values = packed.
template <typename T, bool narrows, typename Block>
DDL_HOST_DEVICE void pass_wire(Block& block, const WirePass& pass) {
  const auto step = static_cast<std::uint64_t>(block.blocks()) * static_cast<std::uint64_t>(block.threads());
  T* const packed = reinterpret_cast<T*>(pass.packed);
  std::uint64_t i = static_cast<std::uint64_t>(block.index()) * static_cast<std::uint64_t>(block.threads()) +
                    static_cast<std::uint64_t>(block.thread());
  for (; i < pass.pieces * pass.length; i += step) {
    const std::uint64_t at = i / pass.length * pass.stride + i % pass.length;
    if constexpr (!narrows) {
      pass.values[at] = widen(packed[i]);
    } else {
      const float wanted = pass.residual == nullptr ? pass.values[at] : pass.values[at] + pass.residual[at];
      packed[i] = narrow<T>(wanted);
      if (pass.residual == nullptr) continue;
      const float left = wanted - widen(packed[i]);
      pass.residual[at] = left - left == 0 ? left : 0;  // 0 if not finite
    }
  }
}

/// Where kernels of a stream wait for a thread of the host. In host memory that the device can access.
struct Gate {
  std::uint64_t released = 0;  ///< Calls up to this one are complete.
  std::uint64_t expired = 0;   ///< Set by the device: the call that timed out while `beat` stood still.
  std::uint32_t opened = 0;    ///< If not 0, nothing waits any more.
  std::uint32_t beat = 0;      ///< Advances as long as the host's thread runs.
};

/// Run by one thread: waits until `call` is complete. Gives up if the host's thread stands still for
/// `timeout_ns`.
template <typename Block>
DDL_HOST_DEVICE void hold(Block& block, Gate& gate, std::uint64_t call, std::uint64_t timeout_ns) {
  std::uint32_t beat = block.load(gate.beat);
  std::uint64_t since = block.now_ns();
  while (block.load(gate.released) < call && block.load(gate.opened) == 0) {
    const std::uint32_t now = block.load(gate.beat);
    if (now != beat) {
      beat = now;
      since = block.now_ns();
    } else if (block.now_ns() - since > timeout_ns) {
      return block.tell(gate.expired, call);
    }
    block.pause();
  }
}

}  // namespace ddl::collectives::device
