#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

namespace ddl {

namespace collectives {
class RunRecorder;
}

/// This rank's part of the job's timeline, recorded if `ContextOptions::timeline` (DDL_TIMELINE) names a
/// file. See `Context::timeline()`.
///
/// The file is one trace of all ranks in the Trace Event Format, for ui.perfetto.dev or chrome://tracing.
/// Each rank is a process with a track for the trainer's own events, one for gradients (`ready`, and each
/// bucket when it is queued), one for collective calls, and one for each phase of their plans. Times are
/// those of rank 0's clock. Ranks of one host read the same clock. For other hosts, the clock's offset is
/// measured by round trips with rank 0 when the job starts and when it ends, by the fastest round trip each
/// time, and interpolated linearly in between. Half of that round trip bounds the offset's error, which the
/// trace states.
///
/// Rank 0 checks during start-up that the file can be written; if not, all ranks throw `invalid_argument`.
/// Rank 0 writes the file, under a temporary name first, when the ranks destroy their contexts, which wait
/// for one another without a deadline. After a failure each rank that can writes its events to a file of its
/// own, e.g. trace.rank3.json for trace.json. A file that cannot be written at the end is logged.
///
/// Memory: 64 bytes for each of the newest `ContextOptions::timeline_events` events (131,072) of each thread,
/// for at most 16 threads. Dropped events are counted in the trace and in the log.
///
/// Cost: without a file, the test of a pointer. With one, 150 ns per named event (measured in a loop on a
/// busy machine), and 10 to 70 ns per collective; no locks, except for a name that a thread uses for the
/// first time. Any thread, as long as the context exists.
class Timeline {
 public:
  /// A named number that is shown with an event.
  struct Argument {
    std::string_view name;  ///< At most 200 characters are kept, as of all names.
    std::int64_t value;     ///< In the unit that the name implies.
  };

  /// An event of the thread that makes it, from its construction to `end` or its destruction. Scopes of a
  /// thread nest. One that ends after the context is not in the trace.
  class [[nodiscard]] Scope {
   public:
    /// Takes over the event; `other` records nothing.
    Scope(Scope&& other) noexcept;
    Scope& operator=(Scope&&) = delete;
    ~Scope() { end(); }
    /// Ends the event now instead of at the destruction. Does nothing the second time.
    void end() noexcept {
      if (recorder_ != nullptr) record();
    }

   private:
    friend class Timeline;
    Scope() = default;
    void record() noexcept;

    std::shared_ptr<collectives::RunRecorder> recorder_;
    std::uint64_t begin_ = 0;
    std::uint32_t name_ = 0;
    std::uint16_t track_ = 0;
  };

  /// Name of the track for the program's own events.
  static constexpr std::string_view trainer = "trainer";

  /// For the library itself. `recorder`: null if nothing is recorded.
  explicit Timeline(std::shared_ptr<collectives::RunRecorder> recorder);
  ~Timeline();
  Timeline& operator=(Timeline&&) = delete;

  /// Whether events are recorded.
  [[nodiscard]] bool is_on() const noexcept { return recorder_ != nullptr; }

  /// Begins an event that lasts as long as the result: `auto scope = context.timeline().scope("backward");`.
  /// `track` names the row of the trace; it is made when it is first used.
  Scope scope(std::string_view name, std::string_view track = trainer) {
    return is_on() ? begin(name, track) : Scope();
  }
  /// Records an event without a duration at the current time. At most three arguments are kept.
  void instant(std::string_view track, std::string_view name,
               std::initializer_list<Argument> arguments = {}) {
    if (is_on()) add_instant(track, name, arguments);
  }
  /// Records an event that was measured elsewhere, for instance by a device's events, from `begin_ns` to
  /// `end_ns` on the clock of `now_ns`; times of another clock must be converted first. Events of a track may
  /// come in any order and overlap: the trace then shows the track in several rows. At most three arguments
  /// are kept.
  void add(std::string_view track, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
           std::initializer_list<Argument> arguments = {}) {
    if (is_on()) add_measured(track, name, begin_ns, end_ns, arguments);
  }
  /// The current time in nanoseconds of CLOCK_MONOTONIC (std::chrono::steady_clock).
  [[nodiscard]] static std::int64_t now_ns() noexcept;

 private:
  Scope begin(std::string_view name, std::string_view track);
  void add_instant(std::string_view track, std::string_view name, std::initializer_list<Argument> arguments);
  void add_measured(std::string_view track, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
                    std::initializer_list<Argument> arguments);

  std::shared_ptr<collectives::RunRecorder> recorder_;
};

}  // namespace ddl
