#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/context.hpp"
#include "ddl/data_type.hpp"
#include "ddl/parameter.hpp"

namespace ddl {

/// A tensor to be saved, or to be filled from a checkpoint. Does not own its memory.
struct NamedTensor {
  std::string name;                 ///< Unique within its group.
  DataType type = DataType::f32;    ///< Type of the elements.
  std::vector<std::int64_t> shape;  ///< Size of each dimension.
  std::span<std::byte> bytes;       ///< The elements: as many as the product of `shape`.
};

/// A contiguous part of a tensor's elements in the tensor's flat order. Does not own its memory.
struct TensorSlice {
  std::string name;                 ///< The whole tensor's name.
  DataType type = DataType::f32;    ///< Type of the elements.
  std::vector<std::int64_t> shape;  ///< The whole tensor's shape.
  std::uint64_t first = 0;          ///< Flat index of the first element of the slice.
  std::span<std::byte> bytes;       ///< The slice's elements; its size gives their number.
};

/// One rank's view of a group of tensors (the model, the optimiser's state), to be saved or to be filled. A
/// tensor's name appears in only one of the three lists.
struct CheckpointGroup {
  /// Saving: tensors that all ranks hold with the same values. Filling: tensors that this rank wants whole.
  std::vector<NamedTensor> whole = {};
  /// Saving: this rank's parts of tensors. All ranks' parts together must cover each tensor, and ranks that
  /// hold the same element must hold the same value. Filling: any parts. A tensor may have several parts in
  /// the list, or none.
  std::vector<TensorSlice> slices = {};
  /// Tensors of this rank alone (such as the rounding errors of error feedback), which may differ between
  /// ranks. Filling: those that the rank of the same number saved.
  std::vector<NamedTensor> per_rank = {};
};

/// The `values` of all parameters of `model`, as `whole` tensors. Valid as long as the model's memory.
[[nodiscard]] CheckpointGroup group_of(const Model& model);

/// One rank's contribution to a checkpoint. Names of groups and files must not contain directories.
struct CheckpointContents {
  std::map<std::string, CheckpointGroup> groups = {};  ///< Groups by name; the same groups on all ranks.
  std::string state = "{}";  ///< The program's state as JSON text; rank 0's is saved. Empty: {}.
  std::map<std::string, std::string> files = {};  ///< Contents of small files by name; rank 0's are saved.
};

/// Settings of a `Checkpoint`; the same on all ranks.
struct CheckpointOptions {
  /// How many checkpoints to keep: each save removes all but the newest `keep`, and never what it just saved.
  /// 0: all.
  std::size_t keep = 5;
  /// Also keeps this many checkpoints with the greatest metric; of equal ones the earlier.
  std::size_t keep_best = 0;
  /// Whether every rank writes its part and reads what it needs, through a file system that all hosts share.
  /// Else rank 0 writes and reads everything, and only its host needs the directory.
  bool sharded = false;
  /// Whether `save` returns once the contents are copied, and a thread writes the copy.
  bool background = false;
  /// Whether SIGUSR1 requests a save, and SIGTERM a save and an end, while the `Checkpoint` exists: see
  /// `Checkpoint::poll`.
  bool handle_signals = false;
};

/// What signals have requested.
enum class CheckpointRequest : std::uint8_t {
  none,          ///< Nothing.
  save,          ///< Save now and continue.
  save_and_end,  ///< Save now, then end the program.
};

/// A rank's votes for `Checkpoint::acknowledge`, to be summed over all ranks.
using CheckpointVotes = std::array<double, 3>;

/// An open checkpoint, which is complete and undamaged. Keeps its context alive. It refers to files, which a
/// later save may remove.
///
/// Calls are collective unless they say otherwise, and their errors are agreed: `mismatch` (another model;
/// names the tensor, the found and the expected shape), `corrupt_data` (names the file, what was found and
/// expected), `io`, `unsupported`. No content of a file is trusted, and no memory is allocated for a size
/// that a file claims but does not have.
///
/// Any number of ranks can read what any number saved, sharded or whole. A whole checkpoint is read by rank 0
/// and broadcast in pieces of 16 MiB; of a sharded one every rank reads what it requests.
class SavedCheckpoint {
 public:
  /// Opens the checkpoint at rank 0's `path`, a directory "step-...". Verifies every file's size and
  /// checksum, which reads each byte once.
  static SavedCheckpoint open(const Context& context, const std::filesystem::path& path);

  /// Takes over the checkpoint; the other object may only be destroyed or assigned to.
  SavedCheckpoint(SavedCheckpoint&&) noexcept;
  /// Takes over the checkpoint.
  SavedCheckpoint& operator=(SavedCheckpoint&&) noexcept;
  ~SavedCheckpoint();

  /// The context that it was opened with. Not collective, like the following ones.
  [[nodiscard]] const Context& context() const noexcept;
  /// Its directory, as rank 0 names it.
  [[nodiscard]] const std::filesystem::path& path() const noexcept;
  /// The step that it was saved with.
  [[nodiscard]] std::uint64_t step() const noexcept;
  /// `CheckpointContents::state`, JSON text.
  [[nodiscard]] const std::string& state() const noexcept;
  /// The metric that it was saved with, if any.
  [[nodiscard]] std::optional<double> metric() const noexcept;
  /// How many ranks saved it.
  [[nodiscard]] int ranks() const noexcept;
  /// Whether it has a group of tensors of this name.
  [[nodiscard]] bool has_group(const std::string& group) const;

  /// The contents of the small file `name`, on all ranks. Throws `mismatch` if there is none.
  [[nodiscard]] std::string file(const std::string& name) const;

  /// Fills this rank's tensors of `into` from group `group`. Every tensor of the group must be requested by
  /// some rank, with the type and shape that it was saved with; otherwise nothing is filled. The `per_rank`
  /// tensors may be omitted as a whole; if requested, they must be exactly those that this rank saved, and
  /// the number of ranks must be the same as when saving.
  void restore(const std::string& group, const CheckpointGroup& into) const;

 private:
  friend class Checkpoint;
  struct State;
  explicit SavedCheckpoint(std::unique_ptr<State> state);
  static SavedCheckpoint open_step(const Context& context, const std::filesystem::path& path,
                                   std::optional<std::uint64_t> step);
  std::unique_ptr<State> state_;
};

/// Saves a job's state periodically, and finds the newest or best one again.
///
///     ddl::Checkpoint checkpoint(ctx, "run", {.background = true, .handle_signals = true});
///     if (auto saved = checkpoint.newest()) saved->restore("model", model.group());
///     for (...) {
///       train_one_step();
///       const auto request = checkpoint.poll();
///       if (request != ddl::CheckpointRequest::none || step % 1000 == 0) checkpoint.save(step, contents);
///       if (request == ddl::CheckpointRequest::save_and_end) break;
///     }
///     checkpoint.wait();
///
/// **Files.** Each checkpoint is a directory `DIR/step-0000001234/` with:
/// - safetensors files, readable by the Python package of that name. `GROUP.safetensors` holds complete
///   tensors. If sharded, each rank writes a `GROUP-00003-of-00016.safetensors`, in which a slice is a flat
///   tensor `NAME[FIRST:END]`. `per_rank` tensors are in files of the second kind in both cases;
/// - `state.json` and the small files;
/// - `manifest.json`, written last: format version, step, metric, the place of all elements, each file's size
///   and CRC-32, and its own checksum. A directory without it is no checkpoint.
///
/// All files are written to a temporary directory, synced and renamed. A crash or a full disk leaves earlier
/// checkpoints intact; the next `save` removes what it left behind. Only one job at a time may write to a
/// directory.
///
/// **Calls** are collective unless they say otherwise, and come from one thread. Keeps the context alive.
///
/// **Errors** are agreed: `invalid_argument` (names, shapes or JSON that cannot be saved; slices that leave a
/// gap, with tensor and range), `mismatch` (ranks with different contents), `io` (with path, operation and
/// the system's reason), and those of `SavedCheckpoint`. The object remains usable after an error.
///
/// **Cost of a save**: some all-reduces of a few bytes; one exchange of the contents' description if any
/// rank's has changed since the last save; in the background one copy of this rank's bytes, whose memory is
/// kept; and each byte is written once, by rank 0 or, if sharded, by one of the ranks. Unless sharded, slices
/// and `per_rank` tensors go to rank 0 through reductions of 16 MiB, and rank 0 takes memory for each element
/// once.
///
/// **Signals and mpirun.** A signal to any one rank is enough. It takes effect where the ranks agree on it,
/// so a job that hangs still ends by its deadline or by SIGKILL. Open MPI's mpirun forwards SIGUSR1 and
/// SIGUSR2. When mpirun gets a SIGTERM, it waits for `odls_base_sigkill_timeout` seconds (1 unless set),
/// sends its ranks SIGTERM, waits as long again, sends SIGKILL, and returns 1. So set that time to the
/// duration of a step and a save (`mpirun --mca odls_base_sigkill_timeout 20`; mpirun then also ends that
/// much later after a failure), or send SIGUSR1 first, or send SIGTERM to a rank, which mpirun takes for the
/// end of the program. About 1 s after a rank has died, mpirun sends the others SIGTERM too. No save begins
/// then, because the all-reduce that would agree on it fails like every collective after a peer's death.
class Checkpoint {
 public:
  /// Opens rank 0's `directory`, which need not exist: the first `save` makes it. With `handle_signals`,
  /// installs handlers of the two signals and restores the old ones when destroyed. Throws, agreed,
  /// `mismatch` for different options, and `invalid_argument` for a second object with `handle_signals` at a
  /// time for the same context.
  Checkpoint(const Context& context, std::filesystem::path directory, CheckpointOptions options = {});
  /// Takes over the object; the other one may only be destroyed or assigned to.
  Checkpoint(Checkpoint&&) noexcept;
  /// Destroys the object that was here, which waits for its thread, and takes over the other one.
  Checkpoint& operator=(Checkpoint&&) noexcept;
  /// Waits until this rank's thread has written its part, not for other ranks, and logs errors. A sharded
  /// save in the background that no call has completed is then lost: call `wait` at the end. Not collective.
  ~Checkpoint();

  /// Saves `contents` as the checkpoint of `step`, which replaces one of the same step, and returns its path.
  /// Waits first for a save that is still in flight.
  ///
  /// In the foreground, the checkpoint is durable on return. In the background, the caller may change the
  /// contents on return; the checkpoint is durable once a later call (`poll`, `acknowledge`, `save` or
  /// `wait`) has completed it, which throws the errors of any rank. (Rank 0's thread completes a checkpoint
  /// that is not sharded without that call.) `metric`: a finite score for `keep_best`; greater is better.
  std::filesystem::path save(std::uint64_t step, const CheckpointContents& contents,
                             std::optional<double> metric = {});
  /// Returns when the last save is durable. Throws its errors.
  void wait();

  /// Opens the newest complete and undamaged checkpoint; none if the directory has no checkpoint. Newer ones
  /// that are damaged are left alone and cause a warning. Throws `corrupt_data` if there are checkpoints but
  /// all are damaged, and `unsupported` if one has a newer format: in neither case should a job start anew
  /// unnoticed.
  [[nodiscard]] std::optional<SavedCheckpoint> newest();
  /// The same for the checkpoint with the greatest metric; none if no checkpoint has a metric.
  [[nodiscard]] std::optional<SavedCheckpoint> best();

  /// What signals have requested of this rank. Not collective.
  [[nodiscard]] CheckpointRequest pending() const noexcept;
  /// What signals have requested of any rank; the same on all ranks. Also completes a save in the background
  /// once all ranks have written their part. Call it once a step and do what it returns: the request is then
  /// forgotten. Costs one all-reduce of 24 bytes.
  CheckpointRequest poll();
  /// This rank's part of a `poll` for a trainer that has its own all-reduce in every step: sum the elements
  /// of all ranks' votes in it and give the sums to `acknowledge`. Not collective.
  [[nodiscard]] CheckpointVotes votes() const noexcept;
  /// The other part: does and returns what `poll` would. `sums`: the sums of all ranks' `votes`. Communicates
  /// only if a save can be completed.
  CheckpointRequest acknowledge(const CheckpointVotes& sums);

  /// Rank 0's directory. Not collective.
  [[nodiscard]] const std::filesystem::path& directory() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes `bytes` to `path` through a temporary file that is synced and renamed, so that readers see the old
/// file or the complete new one. Not collective. Throws `io`.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

}  // namespace ddl
