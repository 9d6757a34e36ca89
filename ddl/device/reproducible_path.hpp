#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "collectives/device/reproducible_kernels.hpp"
#include "collectives/kernels/exact_form.hpp"
#include "ddl/context.hpp"
#include "ddl/device/runtime/device_path.hpp"

namespace ddl::device {

/// In front of another path, in reproducible contexts: reductions of floats become that path's reductions of
/// integers, and kernels before and after them, so that they have the bits of the host's (see
/// collectives::ReproducibleReductions). Other calls are the other path's as they are. A call is cut into
/// parts that fit the working memory, which calls use one after the other, as their streams are ordered.
class ReproduciblePath : public DevicePath {
 public:
  /// Device memory of each rank.
  struct Memory {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  /// Loads the kernels, so that none is loaded while another one waits. Collective; errors are agreed.
  static void load(Context& context);
  /// How much memory there must be so that any call can be cut into parts.
  [[nodiscard]] static std::size_t least_bytes(int ranks) noexcept;

  /// `path` must outlive it, and makes no calls but this one's from now on; `memory` is as large on all
  /// ranks.
  ReproduciblePath(DevicePath& path, int rank, int ranks, Memory memory);

  void run(const DeviceCall& call) override;
  [[nodiscard]] bool is_reproducible() const noexcept override { return true; }
  [[nodiscard]] bool can_be_captured(const DeviceCall& call) override { return path_.can_be_captured(call); }
  /// But for the kernel behind a call's last part.
  [[nodiscard]] std::uint64_t completed() override;
  [[nodiscard]] std::optional<PathFailure> failure() override;
  void abort() noexcept override { path_.abort(); }
  void settle() override { path_.settle(); }
  void close(bool in_order) noexcept override { path_.close(in_order); }

 private:
  struct Part;
  void reduce(const DeviceCall& call);
  void reduce_part(const Part& part);
  void multiply(const DeviceCall& call);
  void pass_on(const DeviceCall& part);
  [[nodiscard]] std::uint64_t call_of(std::uint64_t part) const;

  DevicePath& path_;
  const std::size_t rank_;
  const std::size_t ranks_;
  const Memory memory_;
  std::uint64_t parts_ = 0;  // that `path_` has been given

  static constexpr std::size_t kept = 256;  // of the calls that are over
  std::mutex mutex_;
  std::uint64_t forgotten_ = 0;     // calls, before those of
  std::deque<std::uint64_t> last_;  // each call's last part
};

}  // namespace ddl::device
