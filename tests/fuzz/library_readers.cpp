// Readers of options, of checkpoints and saved states, and of what other processes send.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/system/descriptors.hpp"
#include "collectives/watch/connection.hpp"
#include "collectives/watch/exit_report.hpp"
#include "collectives/watch/flight_recorder.hpp"
#include "collectives/watch/socket_watch.hpp"
#include "ddl/checkpoint/checkpoint_manifest.hpp"
#include "ddl/checkpoint/safetensors.hpp"
#include "ddl/context/process_bootstrap.hpp"
#include "ddl/files/durable_file.hpp"
#include "ddl/gradients/buckets.hpp"
#include "ddl/options.hpp"
#include "ddl/options/option_table.hpp"
#include "ddl/sharded_sampler.hpp"
#include "fuzz/reader.hpp"

namespace ddl::fuzz {
namespace {

using namespace collectives;
using namespace std::chrono_literals;

/// Reads; returns nothing if the bytes were refused with one of `codes`.
template <typename Read>
auto accepted(Read read, std::initializer_list<ErrorCode> codes = {ErrorCode::corrupt_data})
    -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const Error& error) {
    for (const ErrorCode code : codes) {
      if (error.code() == code) {
        if (code != ErrorCode::io) require_message(error, code);  // those name files, whatever their names
        return {};
      }
    }
    require(false, std::string("code ") + std::string(to_string(error.code())) + ": " + error.what());
    return {};
  }
}

/// Of options, one of which names files with plans.
constexpr std::initializer_list<ErrorCode> option_errors = {ErrorCode::invalid_argument, ErrorCode::io,
                                                            ErrorCode::corrupt_data};

/// Words as in DDL_OPTIONS.
bool takes_flags(std::string_view bytes) {
  const auto settings = accepted([&] { return option_settings(bytes); }, option_errors);
  if (!settings) return false;
  std::string words;
  for (const OptionSetting& setting : *settings) {
    if (setting.origin == "flags") words += fmt::format("{} {} ", setting.word, setting.value);
  }
  const auto again = option_settings(words);
  for (std::size_t i = 0; i < again.size(); ++i) {
    require(again[i].value == (*settings)[i].value, again[i].name + " does not come back equal");
  }
  return true;
}

/// A line with the name of an option, and its value.
bool takes_option(std::string_view bytes) {
  const auto end = std::min(bytes.find('\n'), bytes.size());
  const std::string_view value = bytes.substr(std::min(end + 1, bytes.size()));
  for (const Option& option : all_options()) {
    if (option.name != bytes.substr(0, end)) continue;
    ContextOptions options;
    const auto is_right = accepted([&] { return option.value.set(options, value); }, option_errors);
    if (!is_right.value_or(false)) return false;
    const std::string text = option.value.get(options);
    ContextOptions again;
    require(option.value.set(again, text) && option.value.get(again) == text,
            text + " does not come back equal");
    return true;
  }
  return false;
}

/// A manifest whose checksum is made right, because damage beside it would never be read.
bool takes_manifest(std::string_view bytes) {
  constexpr std::string_view key = "\"checksum\": \"";
  constexpr std::string_view zeros = "00000000";
  std::string text(bytes);
  if (const auto at = text.find(key); at != text.npos && text.size() >= at + key.size() + zeros.size()) {
    const auto digits = at + key.size();
    text.replace(digits, zeros.size(), zeros);
    FileSummary summary;
    summary.add(std::as_bytes(std::span(text)));
    text.replace(digits, zeros.size(), fmt::format("{:08x}", summary.crc32));
  }
  const auto manifest = accepted([&] { return CheckpointManifest::parse("fuzzed", text); },
                                 {ErrorCode::corrupt_data, ErrorCode::unsupported});
  if (!manifest) return false;
  const auto again = CheckpointManifest::parse("fuzzed", manifest->to_json());
  require(again.step == manifest->step && again.metric == manifest->metric &&
              again.layout == manifest->layout && again.files == manifest->files,
          "does not come back equal");
  return true;
}

bool takes_safetensors(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto index = accepted([&] { return safetensors::read_index(FileReader(file.path())); });
  if (!index) return false;
  for (const auto& [name, entry] : *index) {
    require(entry.offset <= bytes.size() && entry.form.bytes() <= bytes.size() - entry.offset,
            name + " is not in the file");
  }
  return true;
}

bool takes_sampler_state(std::string_view bytes) {
  ShardedSampler sampler(1, 2, 100, {.batch_size = 8});
  const auto read = [&] {
    sampler.restore(bytes);
    return true;
  };
  const std::initializer_list<ErrorCode> codes = {ErrorCode::corrupt_data, ErrorCode::unsupported,
                                                  ErrorCode::mismatch};
  if (!accepted(read, codes)) return false;
  ShardedSampler again(1, 2, 100, {.batch_size = 8});
  again.restore(sampler.state());
  require(again.state() == sampler.state(), "does not come back equal");
  for (std::size_t i = 0; i < sampler.steps_per_epoch() + 2; ++i) {
    require(sampler.next().samples == again.next().samples, "deals other samples");
  }
  return true;
}

bool takes_reducer_state(std::string_view bytes) {
  constexpr std::size_t gradients = 3;
  const auto state = accepted([&] { return LearnedBuckets::parse(bytes, gradients); });
  if (!state) return false;
  require(LearnedBuckets::parse(state->json(), gradients).json() == state->json(),
          "does not come back equal");
  std::vector<bool> seen(gradients);
  for (const std::size_t gradient : state->order) {
    require(gradient < gradients && !seen[gradient], "no order of gradients");
    seen[gradient] = true;
  }
  return true;
}

/// Frames between a rank and rank 0, which arrive in pieces.
bool takes_frames(std::string_view bytes) {
  const auto read = [&] {
    FrameReader reader;
    std::size_t frames = 0;
    for (std::size_t piece = 1; !bytes.empty(); piece = piece * 3 % 251) {
      reader.put(bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      while (const auto frame = reader.next(~0U)) {
        ++frames;
        if (frame->kind == Frame::Kind::hello) static_cast<void>(parse_hello(frame->body));
        if (frame->kind == Frame::Kind::failure) static_cast<void>(parse_failure(frame->body));
        if (frame->kind != Frame::Kind::state && frame->kind != Frame::Kind::report) continue;
        ExitReport report = parse_report(frame->body);
        find_differences(report);
        static_cast<void>(report.text());
      }
    }
    return frames;
  };
  return accepted(read).value_or(0) > 0;
}

sockaddr_un address_of(const std::string& abstract_name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, abstract_name.data(), abstract_name.size());
  return address;
}
socklen_t length_of(const std::string& abstract_name) {
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + abstract_name.size());
}

/// Not valid if nobody listens. Waits for somebody with `waits`.
FileDescriptor connected(const std::string& name, bool waits) {
  const sockaddr_un address = address_of(name);
  FileDescriptor made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  while (connect(made.get(), reinterpret_cast<const sockaddr*>(&address), length_of(name)) != 0) {
    if (!waits) return {};
    std::this_thread::sleep_for(100us);
  }
  return made;
}

void send_all(const FileDescriptor& socket, std::string_view bytes) {
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  shutdown(socket.get(), SHUT_WR);
  std::array<char, 4096> room;
  while (recv(socket.get(), room.data(), room.size(), 0) > 0) {
  }
}

/// What somebody sends to the port at which rank 0 gathers failures. He may know the token.
bool takes_stranger(std::string_view bytes) {
  WatchHub::Settings settings;
  settings.ranks = 2;
  settings.token = {1, 2};
  std::atomic<bool> is_refused = false;
  settings.warn = [&](const std::string& text) {
    is_refused = true;
    require_message(Error(ErrorCode::internal, text), ErrorCode::internal);
  };
  WatchHub hub(settings);
  hub.begin();
  send_all(connect_to_first({"127.0.0.1"}, hub.port(), Clock::now() + 10s), bytes);
  // A rank can still join, unless its place is taken.
  const auto join = [&] {
    SocketWatchSettings rank;
    rank.hello = {.token = settings.token, .rank = 0, .pid = 1, .host = "a"};
    rank.invitation = {.addresses = {"127.0.0.1"}, .port = hub.port(), .token = {}, .host = "a", .pid = 1};
    rank.until = Clock::now() + 10s;
    return watch_by_socket(rank) != nullptr;
  };
  static_cast<void>(accepted(join, {ErrorCode::transport, ErrorCode::corrupt_data, ErrorCode::mismatch}));
  return !is_refused;
}

/// What a rank hears from one who claims to be rank 0.
bool takes_invitation(std::string_view bytes) {
  Listener listener(true);
  std::jthread host([&] {
    pollfd ready{listener.socket.get(), POLLIN, 0};
    poll(&ready, 1, 10'000);
    send_all(FileDescriptor(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC)), bytes);
  });
  const auto join = [&] {
    SocketWatchSettings rank;
    rank.hello = {.token = {1, 2}, .rank = 1, .pid = 1, .host = "a"};
    rank.invitation = {
        .addresses = {"127.0.0.1"}, .port = listener.port, .token = {1, 2}, .host = "a", .pid = 1};
    rank.until = Clock::now() + 10s;
    FlightRecorder recorder;
    const auto watch = watch_by_socket(rank);
    watch->attach(recorder, [] {});
    // Rank 0 has closed the connection, which is its death unless it has said that it leaves.
    const auto until = Clock::now() + 20ms;
    while (!watch->failed() && Clock::now() < until) std::this_thread::sleep_for(100us);
    if (watch->failed()) static_cast<void>(watch->report().text());
    return true;
  };
  return accepted(join, {ErrorCode::transport, ErrorCode::corrupt_data, ErrorCode::peer_failed}).has_value();
}

/// What rank 0, if the first byte is even, or rank 1 of a job without mpirun hears from the other. Rank 0 may
/// take it for a stranger's; then the right rank 1 comes.
bool takes_job_socket(std::string_view bytes) {
  if (bytes.empty()) return false;
  const bool is_first = bytes.front() % 2 == 0;
  bytes.remove_prefix(1);
  static int number = 0;
  const std::string name = fmt::format("ddl-fuzz-{}-{}", getpid(), ++number);
  setenv("WORLD_SIZE", "2", 1);
  setenv("RANK", is_first ? "0" : "1", 1);
  setenv("DDL_SOCKET", ("@" + name).c_str(), 1);
  FileDescriptor listener;
  if (!is_first) {
    const sockaddr_un address = address_of(name);
    listener = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    require(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length_of(name)) == 0, "bind");
    require(listen(listener.get(), 1) == 0, "listen");
  }
  std::atomic<bool> is_stranger = false;
  std::jthread other([&] {
    if (!is_first) {
      return send_all(FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)), bytes);
    }
    send_all(connected(name, true), bytes);
    const FileDescriptor again = connected(name, false);
    if (!again.valid()) return;
    is_stranger = true;
    constexpr std::string_view rank_1(
        "dlboot2\1"
        "\1\0\0\0\2\0\0\0\5\0\0\0\0\0\0\0other",
        29);
    send_all(again, rank_1);
  });
  const auto meet = [&] {
    const auto bootstrap = join_by_socket(20s);
    const auto all = bootstrap->all_gather("own");
    require(all.size() == 2 && all[0] == (is_first ? "own" : all[0]), "not what was sent");
    return true;
  };
  const bool has_met = accepted(meet, {ErrorCode::transport, ErrorCode::corrupt_data, ErrorCode::mismatch,
                                       ErrorCode::peer_failed})
                           .has_value();
  return has_met && !is_stranger;
}

}  // namespace

std::span<const Reader> readers() {
  static constexpr std::array all = {
      Reader{"flags", takes_flags},
      Reader{"option", takes_option},
      Reader{"manifest", takes_manifest},
      Reader{"safetensors", takes_safetensors},
      Reader{"sampler_state", takes_sampler_state},
      Reader{"reducer_state", takes_reducer_state},
      Reader{"frames", takes_frames},
      Reader{"stranger", takes_stranger},
      Reader{"invitation", takes_invitation},
      Reader{"job_socket", takes_job_socket},
  };
  return all;
}

}  // namespace ddl::fuzz
