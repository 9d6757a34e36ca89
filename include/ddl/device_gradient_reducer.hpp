#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/device.hpp"
#include "ddl/gradient_reducer.hpp"

/// Gradients on GPUs. In builds with CUDA: link ddl::cuda.
namespace ddl {

/// One parameter's gradient on this rank's device: `count` floats that stay where they are while the reducer
/// lives.
struct DeviceGradient {
  std::string name;
  float* values = nullptr;
  std::size_t count = 0;
};

struct DeviceGradientReducerOptions {
  GradientKind gradients;  ///< No default: a wrong guess here is a wrong model.
  /// Gradients are reduced in buckets of at most this many bytes. Same on all ranks. 0: a twentieth of all,
  /// between 1 and 25 MiB.
  std::size_t bucket_bytes = 0;
  /// As GradientReducerOptions's.
  bool leave_sums = false;
  /// Whether there will be micro-batches (`no_sync`). Means take memory of their size for that, sums none.
  bool micro_batches = false;
  /// What travels where there are several hosts: f32, or bf16 or f16, with error feedback, which takes memory
  /// of the gradients' size. Between the devices of a host as well, and partial sums too: one rounding a hop.
  /// Sums beyond 65,504 are infinite in f16.
  DataType wire = DataType::f32;
};

/// What a step ends with, in the device's memory, for kernels: the members are those of `ReducedStep`.
struct DeviceOutcome {
  double weight;
  double scale;
  double norm;
  unsigned int finite;
};

/// `GradientReducer` for gradients in device memory: weighted means (or sums) over all ranks, in buckets by
/// the learned order of readiness, each reduced on a stream of the reducer's own while backward goes on on
/// the trainer's.
///
/// Per step: [`begin(weight)`], `ready(i, stream)` once for each gradient, as soon as the kernels that finish
/// it are queued on that stream, then `finish`. What is queued on the stream of `finish` after it sees the
/// results. The host waits for no device, but in the first step's `finish`, which learns the order, and in
/// `result`. A weight that is given to `begin` has buckets become means during backward; sums may do without
/// it and give it to `finish`.
///
/// Gradients that lie one after the other in memory from `DeviceCommunicator::allocate` (where all ranks are
/// threads of one process: any) are reduced where they are; others are packed into memory of the reducer's
/// own, of which there is as much as of gradients. Weighting is part of that pass; scaling, the norm and the
/// way back are one. All in float, products and squares in double. Every rank has the same bits, on every
/// run; in reproducible contexts gradients and norm also whatever the buckets and the devices' topology:
/// squares are added up as whole numbers then, which have the bits of `GradientReducer`'s.
///
/// Between `ready` and what follows `finish`, gradients are the reducer's. Streams of `ready` must live until
/// `finish`. Not thread-safe; for the thread that made the communicator. Errors are those of
/// `GradientReducer`, but that those of a wrong weight, or of a gradient that was not reported, are thrown by
/// `finish` on the rank that has them and reach the others' `result` (weight) or `ReducedStep::finite`
/// (gradient); and those of `DeviceCommunicator`.
class DeviceGradientReducer {
 public:
  /// Collective. `communicator` must outlive it.
  DeviceGradientReducer(DeviceCommunicator& communicator, std::vector<DeviceGradient> gradients,
                        DeviceGradientReducerOptions options);
  /// Waits for what it has queued.
  ~DeviceGradientReducer();
  DeviceGradientReducer(const DeviceGradientReducer&) = delete;
  DeviceGradientReducer& operator=(const DeviceGradientReducer&) = delete;

  void begin(double weight);
  /// Gradient `index` is final for this step once what is queued on `stream` is done. Throws `unsupported`,
  /// as `finish`, if the stream is being captured: a step's weight and the order of gradients are the host's.
  void ready(std::size_t index, DeviceStream stream);
  /// Gradient `index` gets no value on this rank in this step; it counts as zeros, and its memory gets zeros.
  void absent(std::size_t index);
  /// Ends a step of gradient sums over `weight` items.
  void finish(double weight, DeviceStream stream);
  /// Ends a step whose weight was given to `begin`.
  void finish(DeviceStream stream);

  /// Of the last step: for what is queued on the stream of `finish` behind it.
  [[nodiscard]] const DeviceOutcome* outcome() const noexcept;
  /// Of the last step; waits for it. Once a step, if at all.
  ReducedStep result();

  /// While it lives, `finish` ends a micro-batch without reducing anything. As `GradientReducer::no_sync`.
  class [[nodiscard]] NoSync {
   public:
    NoSync(NoSync&&) = delete;
    ~NoSync();

   private:
    friend DeviceGradientReducer;
    explicit NoSync(bool& scope) noexcept;
    bool& scope_;
  };
  NoSync no_sync();

  /// As GradientReducer's.
  [[nodiscard]] std::string state() const;
  void restore(std::string_view state);
  /// What 16-bit wires owe to the next step, of each gradient, in the device's memory: this rank's part of a
  /// checkpoint. To be read and written while no step is under way. Empty for f32.
  [[nodiscard]] std::vector<DeviceGradient> residuals() const;

  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::size_t buckets() const noexcept;
  /// Bytes.
  [[nodiscard]] std::size_t largest_bucket() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddl
