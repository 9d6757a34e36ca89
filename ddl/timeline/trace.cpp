// Writes the Trace Event Format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

#include "ddl/timeline/trace.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ddl/files/durable_file.hpp"
#include "ddl/timeline/clocks.hpp"
#include "topology/refuse.hpp"

namespace ddl {
namespace {

using collectives::Event;
using collectives::RunRecorder;

constexpr std::string_view trace_begin = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
constexpr std::string_view trace_end = "{\"name\":\"ddl_end\",\"ph\":\"M\",\"pid\":0,\"args\":{}}\n]}\n";

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> all_quoted(const std::vector<std::string>& texts) {
  std::vector<std::string> result;
  for (const std::string& text : texts) result.push_back(quoted(text));
  return result;
}

/// An event with its times on the job's clock, in nanoseconds.
struct Timed {
  const Event* event;
  std::int64_t begin;
  std::int64_t end;
};

/// Spans of one thread nest and get rows of their own. Other spans of a track share rows and may overlap.
struct TrackKey {
  std::uint16_t track;
  std::size_t thread;  // 0 for spans that do not nest
  auto operator<=>(const TrackKey&) const = default;
};

class Writer {
 public:
  Writer(const RunRecorder::Recording& recording, const TraceSource& source)
      : source_(source),
        names_(all_quoted(recording.names)),
        tracks_(recording.tracks),
        plans_(source.plans.size() + 1, "\"\"") {
    for (std::size_t i = 0; i < source.plans.size(); ++i) {
      const collectives::ChosenPlan& plan = *source.plans[i].chosen;
      plans_[i + 1] = quoted(fmt::format("{} (hash {:016x})", plan.text, plan.hash));
    }
  }

  std::string write(const RunRecorder::Recording& recording) {
    head(recording.dropped);
    std::map<TrackKey, std::vector<Timed>> tracks;
    for (std::size_t thread = 0; thread < recording.threads.size(); ++thread) {
      for (const Event& event : recording.threads[thread]) {
        tracks[{event.track, nests(event) ? thread : 0}].push_back(timed(event));
      }
    }
    for (auto& [key, events] : tracks) write_track(key, events);
    return fmt::to_string(text_);
  }

 private:
  static constexpr int most_rows = 1000;  // per track

  static bool nests(const Event& event) noexcept {
    return !event.by_clock && event.kind <= Event::Kind::instant;
  }

  [[nodiscard]] Timed timed(const Event& event) const {
    if (!event.by_clock) return {&event, source_.of_ticks(event.begin), source_.of_ticks(event.end)};
    return {&event, source_.of_clock(static_cast<std::int64_t>(event.begin)),
            source_.of_clock(static_cast<std::int64_t>(event.end))};
  }

  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_.append(std::string_view(",\n"));
  }

  void head(std::uint64_t dropped) {
    const std::string name = quoted(fmt::format("rank {} ({})", source_.rank, source_.host));
    line(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", source_.rank, name);
    line(R"({{"name":"process_sort_index","ph":"M","pid":{0},"args":{{"sort_index":{0}}}}})", source_.rank);
    const std::string label =
        fmt::format("clock exact to {:.3f} us{}", microseconds(source_.clock_error),
                    dropped == 0 ? "" : fmt::format(", {} older events dropped", dropped));
    line(R"({{"name":"process_labels","ph":"M","pid":{},"args":{{"labels":{}}}}})", source_.rank,
         quoted(label));
    line(R"({{"name":"ddl_rank","ph":"M","pid":{},"args":{{"dropped":{},"clock_error_us":{:.3f}}}}})",
         source_.rank, dropped, microseconds(source_.clock_error));
  }

  void write_track(const TrackKey& key, std::vector<Timed>& events) {
    std::ranges::stable_sort(events, [](const Timed& a, const Timed& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    const int first = next_row_;
    Rows rows(nests(*events.front().event));
    for (const Timed& event : events) {
      const bool is_instant = event.event->kind == Event::Kind::instant;
      const std::size_t row = is_instant ? 0 : rows.row_for(event.begin, event.end);
      write_event(event, first + static_cast<int>(std::min<std::size_t>(row, most_rows - 1)));
    }
    const int count = std::clamp(static_cast<int>(rows.size()), 1, most_rows);
    for (int row = 0; row < count; ++row) {
      const std::string& track = tracks_.at(key.track);
      const std::string name = quoted(row == 0 ? track : fmt::format("{} ({})", track, row + 1));
      line(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", source_.rank,
           first + row, name);
      line(R"({{"name":"thread_sort_index","ph":"M","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
           source_.rank, first + row, first + row);
    }
    next_row_ += count;
  }

  static double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

  void write_event(const Timed& timed, int row) {
    const Event& event = *timed.event;
    const std::string arguments = arguments_of(event, timed.begin);
    if (event.kind == Event::Kind::instant) {
      line(R"({{"name":{},"ph":"i","s":"t","ts":{:.3f},"pid":{},"tid":{},"args":{{{}}}}})",
           names_.at(event.name), microseconds(timed.begin), source_.rank, row, arguments);
      return;
    }
    line(R"({{"name":{},"cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{},"args":{{{}}}}})",
         names_.at(event.name), category(event), microseconds(timed.begin),
         microseconds(timed.end - timed.begin), source_.rank, row, arguments);
  }

  static const char* category(const Event& event) {
    if (event.kind == Event::Kind::phase) return "phase";
    if (event.kind == Event::Kind::call) return "collective";
    return event.by_clock ? "device" : "program";
  }

  [[nodiscard]] std::string arguments_of(const Event& event, std::int64_t begin) const {
    switch (event.kind) {
      case Event::Kind::call:
        return call_arguments(event.facts.call, begin);
      case Event::Kind::phase:
        return phase_arguments(event.facts.phase);
      case Event::Kind::span:
      case Event::Kind::instant:
        break;
    }
    const collectives::NamedNumbers& numbers = event.facts.numbers;
    std::string text;
    for (std::size_t i = 0; i < numbers.count; ++i) {
      text += fmt::format("{}{}:{}", i == 0 ? "" : ",", names_.at(numbers.names[i]), numbers.values[i]);
    }
    return text;
  }

  [[nodiscard]] std::string call_arguments(const collectives::CallFacts& facts, std::int64_t begin) const {
    const double queued = microseconds(begin - source_.of_ticks(facts.called));
    std::string text = fmt::format(
        R"("sequence":{},"communicator":{},"bytes":{},"count":{},"type":"{}","op":"{}","queued_us":{:.3f})",
        facts.sequence, facts.communicator, facts.count * size_of(facts.type), facts.count,
        to_string(facts.type), to_string(facts.op), std::max(queued, 0.0));
    if (facts.root >= 0) text += fmt::format(R"(,"root":{})", facts.root);
    if (facts.plan != 0) text += fmt::format(R"(,"plan":{})", plans_.at(facts.plan));
    if (facts.way == collectives::CallFacts::Way::failed) text += R"(,"failed":true)";
    if (facts.way == collectives::CallFacts::Way::compared) text += R"(,"compares_plans":true)";
    return text;
  }

  [[nodiscard]] std::string phase_arguments(const collectives::PhaseFacts& facts) const {
    std::string text = fmt::format(R"("sequence":{},"communicator":{},"phase":{},"chunk":{},"bytes":{})",
                                   facts.sequence, facts.communicator, facts.phase, facts.chunk, facts.bytes);
    if (facts.plan != 0) text += fmt::format(R"(,"plan":{})", plans_.at(facts.plan));
    return text;
  }

  const TraceSource& source_;
  std::vector<std::string> names_;
  std::vector<std::string> tracks_;
  std::vector<std::string> plans_;
  fmt::memory_buffer text_;
  int next_row_ = 0;
};

}  // namespace

std::string trace_text(const RunRecorder::Recording& recording, const TraceSource& source) {
  return Writer(recording, source).write(recording);
}

void require_writable_trace(const std::string& name) {
  if (name.empty()) return;
  try {
    if (std::error_code ignored; std::filesystem::is_directory(name, ignored))
      throw_io("write", name, EISDIR);
    const AtomicFileWriter trial(name);
  } catch (const Error& error) {
    fail_with(ErrorCode::invalid_argument,
              "DDL_TIMELINE='{}': {}; expected a file's name in a directory that rank 0 can "
              "write to",
              name, error.what());
  }
}

std::filesystem::path part_of_trace(const std::filesystem::path& name, int rank) {
  const std::string own = fmt::format("{}.rank{}{}", name.stem().string(), rank, name.extension().string());
  return name.parent_path() / own;
}

void write_trace(collectives::CommunicatorImpl& communicator, const std::string& name,
                 std::string_view text) {
  std::optional<AtomicFileWriter> file;
  std::exception_ptr problem;
  // The other ranks cannot see an error of rank 0, so rank 0 keeps it until the collective part is over.
  const auto attempt = [&](const auto& work) {
    if (problem) return;
    try {
      work();
    } catch (const Error&) {
      problem = std::current_exception();
    }
  };
  if (communicator.rank() == 0) {
    attempt([&] {
      file.emplace(name);
      file->write(trace_begin);
    });
  }
  gather_texts(communicator, text,
               [&](int, std::string_view piece) { attempt([&] { file->write(piece); }); });
  if (communicator.rank() == 0) {
    attempt([&] {
      file->write(trace_end);
      file->finish();
    });
  }
  if (problem) std::rethrow_exception(problem);
}

void write_trace_alone(const std::filesystem::path& name, std::string_view text) {
  AtomicFileWriter file(name);
  file.write(trace_begin);
  file.write(text);
  file.write(trace_end);
  file.finish();
}

}  // namespace ddl
