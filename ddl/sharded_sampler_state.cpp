#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/sharded_sampler.hpp"
#include "topology/json_text.hpp"

// Where a sampler stands, as text.

namespace ddl {
namespace {

using nlohmann::json;

constexpr const char* format = "ddl.ShardedSampler";
constexpr std::uint64_t version = 1;

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw Error(
      ErrorCode::corrupt_data,
      fmt::format("ShardedSampler: not the state of a sampler: found {}, expected {}", found, expected));
}

std::uint64_t number_of(const json& value, const char* name) {
  if (!value.is_number_unsigned()) refuse(fmt::format("no number as {}", name), "a whole number");
  return value.get<std::uint64_t>();
}

struct State {
  std::uint64_t samples = 0;
  std::uint64_t seed = 0;
  bool shuffle = false;
  std::string groups = {};
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> segments = {};  // global batch, batches taken
};

json object_in(std::string_view text) {
  json object = json::parse(text, nullptr, false);
  const bool is_one = object.is_object() && object.value("format", json()) == format;
  if (!is_one) {
    refuse(text.empty() ? "nothing" : topology::in_quotes(text),
           fmt::format("an object of format {}", format));
  }
  if (const std::uint64_t found = number_of(object["version"], "version"); found != version) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("ShardedSampler: found a state of version {}, expected {}: it was written by another "
                    "version of ddl; use that one to go on from it",
                    found, version));
  }
  return object;
}

State parse_state(std::string_view text) {
  json object = object_in(text);
  State state;
  state.samples = number_of(object["samples"], "samples");
  state.seed = number_of(object["seed"], "seed");
  if (!object["shuffle"].is_boolean()) refuse("no shuffle", "true or false");
  state.shuffle = object["shuffle"].get<bool>();
  if (!object["groups"].is_string()) refuse("no groups", "a hash of buckets and lengths");
  state.groups = object["groups"].get<std::string>();
  state.step = number_of(object["step"], "step");
  state.epoch = number_of(object["epoch"], "epoch");
  const json& segments = object["segments"];
  if (!segments.is_array() || segments.empty())
    refuse("no segments", "pairs of global batch and batches taken");
  for (const json& segment : segments) {
    if (!segment.is_array() || segment.size() != 2) refuse("a bad segment", "global batch and batches taken");
    state.segments.emplace_back(number_of(segment[0], "global batch"),
                                number_of(segment[1], "batches taken"));
  }
  return state;
}

std::string hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

/// What the samplers deal, and how.
void require_same(const State& found, const State& here) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* name, const auto& theirs, const auto& own) {
    if (theirs != own) differences.push_back(fmt::format("{} {}, here {}", name, theirs, own));
  };
  compare("samples", found.samples, here.samples);
  compare("seed", found.seed, here.seed);
  compare("shuffle", found.shuffle, here.shuffle);
  compare("hash of buckets and lengths", topology::printable(found.groups), here.groups);
  if (differences.empty()) return;
  throw Error(ErrorCode::mismatch,
              fmt::format("ShardedSampler: the state is of another sampler: {}; to go on from it, give the "
                          "dataset and options that it was made with (only batch size and ranks may differ)",
                          fmt::join(differences, "; ")));
}

}  // namespace

std::string ShardedSampler::state() const {
  std::vector<std::string> segments;
  for (const Segment& each : segments_)
    segments.push_back(fmt::format("[{},{}]", each.global_batch, each.taken));
  return fmt::format(
      R"({{"format":"{}","version":{},"samples":{},"seed":{},"shuffle":{},"groups":"{}","step":{},"epoch":{},)"
      R"("segments":[{}]}})",
      format, version, size_, options_.seed, options_.shuffle, hex(groups_hash_), step_, epoch_,
      fmt::join(segments, ","));
}

void ShardedSampler::restore(std::string_view text) {
  const State state = parse_state(text);
  require_same(
      state,
      {.samples = size_, .seed = options_.seed, .shuffle = options_.shuffle, .groups = hex(groups_hash_)});
  std::vector<Segment> segments;
  for (const auto& [global_batch, taken] : state.segments) {
    if (global_batch == 0 || global_batch > size_) {
      refuse(fmt::format("a global batch of {}", global_batch), fmt::format("1 to {} samples", size_));
    }
    const bool is_last = segments.size() + 1 == state.segments.size();
    if (taken == 0 && !is_last) refuse("a segment of no batches", "one or more");
    segments.push_back({global_batch, taken});
  }
  // A run that has taken nothing leaves no trace.
  if (segments.back().taken == 0) segments.pop_back();
  if (segments.empty() || segments.back().global_batch != global_batch_size_) {
    segments.push_back({global_batch_size_, 0});
  }

  segments.swap(segments_);
  const std::uint64_t old_epoch = std::exchange(epoch_, state.epoch);
  if (!build_epoch()) {
    segments.swap(segments_);
    epoch_ = old_epoch;
    refuse(fmt::format("more batches taken than epoch {} has", state.epoch), "at least one left");
  }
  step_ = state.step;
}

}  // namespace ddl
