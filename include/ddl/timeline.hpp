#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

namespace ddl {

namespace collectives {
class RunRecorder;
}

/// This rank's part of a job's timeline, which is kept if `ContextOptions::timeline` (DDL_TIMELINE) names a
/// file. `Context::timeline()` is it.
///
/// The file is one trace of all ranks in the Trace Event Format, for ui.perfetto.dev or chrome://tracing.
/// Each rank is a process, with a track for what the trainer names, one for gradients (`ready`, and each
/// bucket as it is queued), one for the collectives' calls, and one for each phase of their plans. Times are
/// those of rank 0's clock: ranks of one host, and of one process, read the same clock; of other hosts, the
/// offset is measured by round trips with rank 0 when the job starts and when it ends, the quickest of which
/// counts for each, and taken to change evenly in between. Half of that round trip bounds its error, which is
/// in the trace.
///
/// Rank 0 checks while starting that the file can be written: if not, all ranks throw `invalid_argument`. It
/// writes it when the ranks destroy their contexts, under a temporary name first; they wait for one another
/// then, for as long as it takes. After a failure each rank that can writes what it has to a file of its own,
/// named as trace.rank3.json for trace.json. What cannot be written at the end is logged.
///
/// Memory: 64 bytes for each of the newest `ContextOptions::timeline_events` events (131,072) of each thread,
/// of 16 threads at most. What is dropped is counted, in the trace and in the log.
///
/// Cost: without a file, a look at a pointer. With one, 150 ns for each event that is named (measured in a
/// loop, on a busy machine), and 10 to 70 for a collective; no locks, but for a name that a thread uses for
/// the first time. Any thread, as long as the context lives.
class Timeline {
 public:
  /// A number that goes with an event.
  struct Argument {
    std::string_view name;
    std::int64_t value;
  };

  /// What its thread does, from its construction to its end. Scopes of a thread nest.
  class [[nodiscard]] Scope {
   public:
    Scope(Scope&& other) noexcept;
    Scope& operator=(Scope&&) = delete;
    ~Scope() { end(); }
    /// Now, and not only when the scope is left.
    void end() noexcept {
      if (recorder_ != nullptr) record();
    }

   private:
    friend class Timeline;
    Scope() = default;
    void record() noexcept;

    collectives::RunRecorder* recorder_ = nullptr;
    std::uint64_t begin_ = 0;
    std::uint32_t name_ = 0;
    std::uint16_t track_ = 0;
  };

  static constexpr std::string_view trainer = "trainer";

  /// `recorder`: null if nothing is kept.
  explicit Timeline(std::shared_ptr<collectives::RunRecorder> recorder);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Whether events are kept.
  [[nodiscard]] bool is_on() const noexcept { return recorder_ != nullptr; }

  /// `auto scope = context.timeline().scope("backward");`
  Scope scope(std::string_view name, std::string_view track = trainer) {
    return is_on() ? begin(name, track) : Scope();
  }
  /// Now. Of the arguments the first three are kept.
  void instant(std::string_view track, std::string_view name,
               std::initializer_list<Argument> arguments = {}) {
    if (is_on()) add_instant(track, name, arguments);
  }
  /// What was measured elsewhere, for instance by a device's events: from `begin_ns` to `end_ns`, as `now_ns`
  /// counts. Events of a track may come in any order, and overlap: the trace then shows the track in several
  /// rows. Whoever has times of another clock maps them first, by a pair of moments that both clocks have
  /// seen. Of the arguments the first three are kept.
  void add(std::string_view track, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
           std::initializer_list<Argument> arguments = {}) {
    if (is_on()) add_measured(track, name, begin_ns, end_ns, arguments);
  }
  /// Nanoseconds of CLOCK_MONOTONIC (std::chrono::steady_clock).
  [[nodiscard]] static std::int64_t now_ns() noexcept;

 private:
  Scope begin(std::string_view name, std::string_view track);
  void add_instant(std::string_view track, std::string_view name, std::initializer_list<Argument> arguments);
  void add_measured(std::string_view track, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
                    std::initializer_list<Argument> arguments);

  std::shared_ptr<collectives::RunRecorder> recorder_;
};

}  // namespace ddl
