#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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

/// A tensor to be saved, or a place to be filled. `bytes` covers the product of `shape` elements.
struct NamedTensor {
  std::string name;
  DataType type = DataType::f32;
  std::vector<std::int64_t> shape;
  std::span<std::byte> bytes;
};

/// Some of a tensor's elements, as if it were flat: from element `first` as many as `bytes` holds. `shape` is
/// the whole tensor's.
struct TensorSlice {
  std::string name;
  DataType type = DataType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t first = 0;
  std::span<std::byte> bytes;
};

/// One rank's view of a group of tensors (the model, the optimiser's state), to be saved or to be filled. A
/// name belongs to one of the three kinds.
struct CheckpointGroup {
  /// Saving: all ranks hold these, with the same values. Filling: what this rank wants whole.
  std::vector<NamedTensor> whole = {};
  /// Saving: this rank's parts; those of all ranks together must cover each tensor, and where several ranks
  /// have an element they have the same value. Filling: any parts. A tensor may have several here, or none.
  std::vector<TensorSlice> slices = {};
  /// This rank's alone (what error feedback still owes); each rank may have others. Filling: what the rank of
  /// this number saved.
  std::vector<NamedTensor> per_rank = {};
};

/// A model's tensors, whole.
[[nodiscard]] CheckpointGroup group_of(const Model& model);

/// What one rank gives to be saved. Names of groups and files are plain names, without directories.
struct CheckpointContents {
  std::map<std::string, CheckpointGroup> groups = {};  ///< All ranks have the same groups.
  std::string state = "{}";                            ///< JSON text; rank 0's is saved. Empty: {}.
  std::map<std::string, std::string> files = {};       ///< Small files by name; rank 0's are saved.
};

/// The same on all ranks.
struct CheckpointOptions {
  /// After each save all but the newest `keep` are removed; 0 keeps all. What was just saved stays.
  std::size_t keep = 5;
  /// As many of those with the greatest metric (of equal ones the earlier) stay as well.
  std::size_t keep_best = 0;
  /// Every rank writes its part and reads what it needs, through a file system that all hosts share. Else
  /// rank 0 writes and reads everything, and only its host needs the directory.
  bool sharded = false;
  /// `save` returns once the contents are copied, and a thread writes the copy.
  bool background = false;
  /// SIGUSR1 asks for a save, SIGTERM for a save and an end, while this lives: see `Checkpoint::poll`.
  bool handle_signals = false;
};

enum class CheckpointRequest : std::uint8_t {
  none,
  save,          ///< Save now, and go on.
  save_and_end,  ///< Save now, then end.
};

/// What a rank tells the others before they agree: numbers that are summed over all ranks.
using CheckpointVotes = std::array<double, 3>;

/// A checkpoint that is complete and undamaged. Every call is collective unless it says otherwise, and its
/// errors are agreed: `mismatch` (tensor, found and expected shape: another model), `corrupt_data` (file,
/// found and expected), `io`, `unsupported`. Nothing in a file is trusted, and no memory is taken for a size
/// that a file only claims to have. The context must outlive it. It refers to files, which a later save may
/// remove.
///
/// Any number of ranks reads what any number saved, sharded or whole. Rank 0 reads a whole one and broadcasts
/// it, in pieces of 16 MiB; of a sharded one every rank reads what it asks for.
class SavedCheckpoint {
 public:
  /// Opens the checkpoint `path`, a directory "step-...", as rank 0 names it. Checks every file's size and
  /// checksum, for which each byte is read once.
  static SavedCheckpoint open(const Context& context, const std::filesystem::path& path);

  SavedCheckpoint(SavedCheckpoint&&) noexcept;
  SavedCheckpoint& operator=(SavedCheckpoint&&) noexcept;
  ~SavedCheckpoint();

  // Not collective.
  [[nodiscard]] const Context& context() const noexcept;
  [[nodiscard]] const std::filesystem::path& path() const noexcept;
  [[nodiscard]] std::uint64_t step() const noexcept;
  [[nodiscard]] const std::string& state() const noexcept;
  [[nodiscard]] std::optional<double> metric() const noexcept;
  /// How many ranks saved it.
  [[nodiscard]] int ranks() const noexcept;
  [[nodiscard]] bool has_group(const std::string& group) const;

  /// Contents of a small file, on all ranks.
  [[nodiscard]] std::string file(const std::string& name) const;

  /// Fills this rank's tensors. Each tensor of the group must be asked for by some rank, with the type and
  /// shape it was saved with; nothing is filled unless all are. Those of `per_rank` may be left out
  /// altogether; asked for, they must be just those that this rank saved, and there must be as many ranks as
  /// then.
  void restore(const std::string& group, const CheckpointGroup& into) const;

  /// Hands `visit`, on every rank, each saved rank's tensors of `per_rank` one after the other, in order of
  /// rank and name: for another number of ranks, which shares them out as it sees fit. The bytes are valid
  /// during the call. Takes memory for one tensor.
  using PerRankVisitor = std::function<void(int saved_rank, const NamedTensor& tensor)>;
  void visit_per_rank(const std::string& group, const PerRankVisitor& visit) const;

 private:
  friend class Checkpoint;
  struct State;
  explicit SavedCheckpoint(std::unique_ptr<State> state);
  static SavedCheckpoint open_step(const Context& context, const std::filesystem::path& path,
                                   std::optional<std::uint64_t> step);
  std::unique_ptr<State> state_;
};

/// Saves a job's state again and again, and finds it again: a set of checkpoints `DIR/step-0000001234/`, each
/// with
/// - safetensors files, readable by the Python package of that name: `GROUP.safetensors` with complete
/// tensors; or,
///   sharded, `GROUP-00003-of-00016.safetensors` for each rank, in which a slice is a flat tensor
///   `NAME[FIRST:END]`. Tensors of `per_rank` are in files of the second kind in either case;
/// - `state.json` and the small files;
/// - `manifest.json`, written last: format version, step, metric, which elements are where, each file's size
/// and
///   CRC-32, and a checksum of its own. A directory without it is no checkpoint.
/// All is written aside, synced and renamed. A crash or a full disk leaves the earlier ones as they were;
/// what it left behind is removed by the next `save`. One job at a time may write to a directory.
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
/// Calls are collective unless they say otherwise, from one thread; the context must stay where it is while
/// this lives. Errors are agreed: `invalid_argument` (names, shapes, JSON that cannot be saved; slices that
/// leave a gap, with tensor and range), `mismatch` (ranks with other contents), `io` (path, operation, the
/// system's reason), and as `SavedCheckpoint`. After one of those this can be used on.
///
/// Cost of a save: some all-reduces of a few bytes, one exchange of what every rank has where that has
/// changed since the last, one copy of this rank's bytes (in the background; the memory is kept), and each
/// byte written once, by rank 0 or by one of the ranks. Whole, slices and tensors of `per_rank` go to rank 0
/// through reductions of 16 MiB, and it takes memory for each element once.
///
/// Signals and mpirun. A signal to any one rank is enough. It is answered where the ranks agree on it, so a
/// job that hangs ends by its deadline, or by SIGKILL. Open MPI's mpirun hands on SIGUSR1 and SIGUSR2. After
/// a SIGTERM of its own it waits for `odls_base_sigkill_timeout` seconds (1 unless set), sends its ranks
/// SIGTERM, waits as long again, sends SIGKILL, and returns 1: give it what a step and a save take
/// (`mpirun --mca odls_base_sigkill_timeout 20`; it also ends that much later after a failure), or send
/// SIGUSR1 first, or SIGTERM to a rank, which mpirun takes for the end of the program. About 1 s after a rank
/// has died it sends the others SIGTERM too; no save is begun then, because the collective that would agree
/// on it throws what the peer's death makes every collective throw.
class Checkpoint {
 public:
  /// Rank 0's directory counts; the first `save` makes it. With `handle_signals`, takes the two signals'
  /// handlers, and gives them back when destroyed: one Checkpoint of a context at a time, else
  /// `invalid_argument`.
  Checkpoint(const Context& context, std::filesystem::path directory, CheckpointOptions options = {});
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  /// Not collective. Waits until this rank's thread has written what it was given, no longer, and logs what
  /// went wrong. A sharded save that no call has completed is then lost: call `wait` at the end.
  ~Checkpoint();

  /// Saves, replacing a checkpoint of the same step, and returns its path. In the foreground it is durable
  /// then. In the background the contents may be changed then; the checkpoint is durable when a later call
  /// (`poll`, `acknowledge`, `save`, `wait`) has completed it, which throws what went wrong on any rank. (Of
  /// a whole one, rank 0's thread does not wait for that call.) An unfinished save is waited for first.
  /// `metric`: how good this is, for `keep_best`; finite.
  std::filesystem::path save(std::uint64_t step, const CheckpointContents& contents,
                             std::optional<double> metric = {});
  /// Returns when what was saved is durable.
  void wait();

  /// The newest complete and undamaged checkpoint. Newer ones that are damaged are left alone and reported by
  /// a warning. Throws `corrupt_data` if there are some but all are damaged, `unsupported` if one is of a
  /// newer format: neither is a reason to start anew.
  [[nodiscard]] std::optional<SavedCheckpoint> newest();
  /// The same for the one with the greatest metric; none if none has one.
  [[nodiscard]] std::optional<SavedCheckpoint> best();

  /// What signals have asked of this rank. Not collective.
  [[nodiscard]] CheckpointRequest pending() const noexcept;
  /// What signals have asked of any rank, the same on all; completes a save in the background if it can be.
  /// Call it once a step, and do what it says: it is forgotten then. Costs one all-reduce of 24 bytes.
  CheckpointRequest poll();
  /// `poll` for a trainer with an all-reduce of its own in every step: sum each rank's `votes()` (not
  /// collective) in it, and give the sums to `acknowledge`, which communicates only where a save can be
  /// completed.
  [[nodiscard]] CheckpointVotes votes() const noexcept;
  CheckpointRequest acknowledge(const CheckpointVotes& sums);

  /// Rank 0's. Not collective.
  [[nodiscard]] const std::filesystem::path& directory() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes `bytes` to `path` through a temporary file that is synced and renamed.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

}  // namespace ddl
