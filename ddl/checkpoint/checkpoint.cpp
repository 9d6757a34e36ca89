#include "ddl/checkpoint.hpp"

#include <signal.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "collectives/system/fail_agreed.hpp"
#include "ddl/checkpoint/background_work.hpp"
#include "ddl/checkpoint/checkpoint_directory.hpp"
#include "ddl/checkpoint/checkpoint_layout.hpp"
#include "ddl/checkpoint/checkpoint_manifest.hpp"
#include "ddl/checkpoint/checkpoint_snapshot.hpp"
#include "ddl/context/agreement.hpp"
#include "ddl/context/signals.hpp"
#include "ddl/error.hpp"
#include "ddl/log.hpp"

namespace ddl {

/// Receives SIGUSR1 and SIGTERM as requests to one rank. Installs signal handlers while any object of this
/// class exists in the process, where several ranks may be threads, and restores the old handlers afterwards.
/// May be constructed and destroyed in any thread.
class CheckpointSignals {
 public:
  /// Throws `invalid_argument` if the context already has such an object, `internal` if the system refuses.
  explicit CheckpointSignals(const Context& context) : context_(&context.state()) {
    Listeners& all = listeners();
    const std::lock_guard lock(all.mutex);
    if (all.contexts.contains(context_)) {
      throw Error(
          ErrorCode::invalid_argument,
          "found a second Checkpoint with handle_signals, expected one of a context at a time: each signal "
          "would be answered twice; leave handle_signals out for the others");
    }
    ensure_signal_stack();
    if (all.contexts.empty()) {
      all.before_usr1 = handle_signal(SIGUSR1, on_signal);
      all.before_term = handle_signal(SIGTERM, on_signal);
    }
    all.contexts.insert(context_);
    saves_seen_ = saves;
    ends_seen_ = ends;
  }

  CheckpointSignals& operator=(CheckpointSignals&&) = delete;
  ~CheckpointSignals() {
    Listeners& all = listeners();
    const std::lock_guard lock(all.mutex);
    all.contexts.erase(context_);
    if (!all.contexts.empty()) return;
    sigaction(SIGUSR1, &all.before_usr1, nullptr);
    sigaction(SIGTERM, &all.before_term, nullptr);
  }

  /// The strongest request that was not forgotten.
  [[nodiscard]] CheckpointRequest pending() const noexcept {
    if (ends != ends_seen_) return CheckpointRequest::save_and_end;
    return saves != saves_seen_ ? CheckpointRequest::save : CheckpointRequest::none;
  }

  /// Forgets requests up to `request`.
  void forget(CheckpointRequest request) noexcept {
    if (request >= CheckpointRequest::save) saves_seen_ = saves;
    if (request >= CheckpointRequest::save_and_end) ends_seen_ = ends;
  }

 private:
  // Static, because a signal handler can access nothing else. Counters instead of flags, because several
  // ranks in the process may read them.
  static inline std::atomic<unsigned> saves = 0;
  static inline std::atomic<unsigned> ends = 0;
  static_assert(std::atomic<unsigned>::is_always_lock_free, "needed in a signal's handler");

  static void on_signal(int signal) {
    (signal == SIGUSR1 ? saves : ends).fetch_add(1, std::memory_order_relaxed);
  }

  /// The contexts that handle signals, and the handlers before the first of them.
  struct Listeners {
    std::mutex mutex;
    std::set<const ContextState*> contexts;
    struct sigaction before_usr1 {};
    struct sigaction before_term {};
  };

  static Listeners& listeners() {
    static Listeners instance;
    return instance;
  }

  const ContextState* context_;
  unsigned saves_seen_;
  unsigned ends_seen_;
};

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The layout of the written files. Unless the checkpoint is sharded, rank 0 writes all tensors.
CheckpointLayout as_written(CheckpointLayout layout) {
  if (layout.sharded) return layout;
  for (auto& [name, group] : layout.groups) {
    for (auto& [tensor_name, tensor] : group.tensors) tensor.pieces = {{0, 0, tensor.form.elements()}};
  }
  return layout;
}

std::vector<std::string> describe(const CheckpointOptions& options) {
  return {fmt::format("keep={} keep_best={} sharded={} background={} handle_signals={}", options.keep,
                      options.keep_best, options.sharded, options.background, options.handle_signals)};
}

}  // namespace

struct Checkpoint::State {
  State(const Context& context_, const fs::path& directory_, CheckpointOptions options_)
      : context(context_), options(options_), directory(context.broadcast_string(directory_.string())) {
    require_same_entries(context, "open a checkpoint directory", "option", describe(options));
    if (!options.handle_signals) return;
    context.on_all_ranks("handle signals", [&] { signals.emplace(context); });
  }

  /// Checks that all ranks save the same step, and updates the layout if any rank's contents have changed.
  void agree(std::uint64_t step, const CheckpointContents& contents, std::optional<double> metric) {
    context.on_all_ranks(save_operation, [&] { check_contents(contents, metric, context.is_root()); });
    std::string now = describe_contents(contents);
    const auto signed_step = static_cast<std::int64_t>(step);
    std::array<std::int64_t, 3> most = {now == described ? 0 : 1, signed_step, -signed_step};
    context.communicator().all_reduce(std::span(most), ReduceOp::max);
    if (most[1] != -most[2]) {
      fail_agreed(ErrorCode::mismatch,
                  "{}: a rank saves step {}, another one step {}; every rank must save "
                  "the same",
                  save_operation, -most[2], most[1]);
    }
    if (most[0] == 0) return;
    described.clear();
    layout = agree_on_layout(context, contents, options.sharded);
    described = std::move(now);
  }
  void require_shared_directory(std::uint64_t step) {
    context.on_all_ranks(save_operation, [&] {
      const fs::path aside = directory.temporary_of(step);
      std::error_code error;
      if (fs::is_directory(aside, error)) return;
      fail_with(ErrorCode::io,
                "rank {} does not see '{}', which rank 0 has made: sharded checkpoints need a file system "
                "that all hosts share; choose a directory there, or save without shards",
                context.rank(), aside.string());
    });
  }
  /// Starts writing this rank's part, in a thread if `options.background`.
  void start(std::uint64_t step, const CheckpointContents& contents, std::optional<double> metric) {
    TensorFiles files = snapshot.take(context, layout, contents, options.background);
    manifest = {step, metric, {}, {}};
    unfinished = true;
    if (!options.sharded && !context.is_root()) return;
    std::map<std::string, std::string> texts;
    if (context.is_root()) {
      manifest.layout = as_written(layout);
      texts = contents.files;
      texts[state_name] = contents.state.empty() ? "{}" : contents.state;
    }
    work.start(
        [this, files = std::move(files), texts = std::move(texts)] {
          manifest.files = write_files(directory.temporary_of(manifest.step), files, texts);
          if (!options.sharded) complete();
        },
        options.background);
  }
  void write(const fs::path& aside, const TensorFiles& files,
             const std::map<std::string, std::string>& texts);
  /// Writes the manifest and publishes the checkpoint. Only on rank 0, after all files have been written.
  void complete() {
    const fs::path aside = directory.temporary_of(manifest.step);
    write_files(aside, {}, {{manifest_name, manifest.to_json()}});
    directory.publish(manifest.step);
    directory.remove_old(manifest.step, options.keep, options.keep_best);
  }
  void finish() {
    unfinished = false;
    try {
      context.on_all_ranks(
          save_operation, [&] { work.wait(); }, WorkTime::unlimited);
      if (!options.sharded) return;
      const auto texts = gather_texts(context, to_json(manifest.files));
      context.root_only(save_operation, [&] {
        for (const std::string& text : texts) manifest.files.merge(parse_files(text));
        complete();
      });
    } catch (...) {
      if (context.is_root() && work.done()) directory.discard(manifest.step);
      throw;
    }
  }
  /// Opens the first undamaged checkpoint of `steps`. Errors are agreed, so all ranks try the same steps.
  std::optional<SavedCheckpoint> open_first(const char* kind, const std::vector<std::uint64_t>& steps) {
    std::vector<std::string> damage;
    for (const std::uint64_t step : steps) {
      try {
        SavedCheckpoint saved = SavedCheckpoint::open_step(context, directory.path_of(step), step);
        for (const std::string& text : damage)
          context.log().warning(fmt::format("{}; used in its place: '{}'", text, saved.path().string()));
        return saved;
      } catch (const Error& error) {
        if (!error.agreed() || error.code() != ErrorCode::corrupt_data) throw;
        damage.emplace_back(error.what());
      }
    }
    if (damage.empty()) return {};
    fail_agreed(ErrorCode::corrupt_data,
                "all {}checkpoints in '{}' are damaged, the first one so: {}. To start anew, move them "
                "away or choose another directory.",
                kind, directory.path().string(), damage.front());
  }
  std::vector<std::uint64_t> steps_on_root(const std::function<std::vector<std::uint64_t>()>& list) {
    std::string text;
    context.root_only("look for checkpoints", [&] { text = json(list()).dump(); });
    return json::parse(context.broadcast_string(text)).get<std::vector<std::uint64_t>>();
  }

  Context context;
  CheckpointOptions options;
  CheckpointDirectory directory;
  std::optional<CheckpointSignals> signals;
  std::string described;  // describes the contents that `layout` belongs to
  CheckpointLayout layout;
  CheckpointSnapshot snapshot;
  bool unfinished = false;      // a save is in flight; the same on all ranks
  CheckpointManifest manifest;  // of the save in flight, whose thread owns it while it runs
  BackgroundWork work;          // last member: its destructor waits for the thread, which uses the others
};

Checkpoint::Checkpoint(const Context& context, fs::path directory, CheckpointOptions options)
    : state_(std::make_unique<State>(context, directory, options)) {}

Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&& other) noexcept {
  const Checkpoint replaced(std::move(*this));  // its destructor waits
  state_ = std::move(other.state_);
  return *this;
}

Checkpoint::~Checkpoint() {
  if (!state_ || !state_->options.background) return;
  try {
    state_->work.wait();
    if (state_->unfinished && state_->options.sharded) {
      state_->context.log().warning(fmt::format(
          "the checkpoint of step {} is lost, because nobody waited for it: call Checkpoint::wait at the "
          "end",
          state_->manifest.step));
    }
  } catch (...) {
    state_->context.log().error(
        fmt::format("{}: {}", save_operation, as_error(std::current_exception()).what()));
  }
}

fs::path Checkpoint::save(std::uint64_t step, const CheckpointContents& contents,
                          std::optional<double> metric) {
  State& state = *state_;
  wait();
  state.agree(step, contents, metric);
  state.context.root_only(save_operation, [&] { state.directory.prepare(step); });
  try {
    if (state.options.sharded) state.require_shared_directory(step);
    state.start(step, contents, metric);
  } catch (...) {
    if (state.context.is_root()) state.directory.discard(step);
    throw;
  }
  if (!state.options.background) state.finish();
  return state.directory.path_of(step);
}

void Checkpoint::wait() {
  if (state_->unfinished) state_->finish();
}

std::optional<SavedCheckpoint> Checkpoint::newest() {
  wait();
  auto steps = state_->steps_on_root([&] { return state_->directory.steps(); });
  return state_->open_first("", {steps.rbegin(), steps.rend()});
}

std::optional<SavedCheckpoint> Checkpoint::best() {
  wait();
  return state_->open_first("scored ", state_->steps_on_root([&] { return state_->directory.best_steps(); }));
}

CheckpointRequest Checkpoint::pending() const noexcept {
  return state_->signals ? state_->signals->pending() : CheckpointRequest::none;
}

CheckpointVotes Checkpoint::votes() const noexcept {
  const CheckpointRequest request = pending();
  const bool is_writing = state_->unfinished && !state_->work.done();
  return {request == CheckpointRequest::save ? 1.0 : 0.0,
          request == CheckpointRequest::save_and_end ? 1.0 : 0.0, is_writing ? 1.0 : 0.0};
}

CheckpointRequest Checkpoint::acknowledge(const CheckpointVotes& sums) {
  if (state_->unfinished && sums[2] == 0) state_->finish();
  const CheckpointRequest request = sums[1] > 0   ? CheckpointRequest::save_and_end
                                    : sums[0] > 0 ? CheckpointRequest::save
                                                  : CheckpointRequest::none;
  if (state_->signals) state_->signals->forget(request);
  return request;
}

CheckpointRequest Checkpoint::poll() {
  CheckpointVotes sums = votes();
  state_->context.communicator().all_reduce(std::span(sums));
  return acknowledge(sums);
}

const fs::path& Checkpoint::directory() const noexcept { return state_->directory.path(); }

}  // namespace ddl
