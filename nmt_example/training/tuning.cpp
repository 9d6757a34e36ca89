#include "nmt_example/training/tuning.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "ddl/checkpoint.hpp"
#include "ddl/error.hpp"
#include "nmt_example/options/json_text.hpp"
#include "nmt_example/training/corpus.hpp"
#include "nmt_example/training/trainer.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;
constexpr const char* record_name = "tune.json";
constexpr const char* data_name = "train.data";

fs::path directory_of(const Options& options, const Tuning& tuning, const TuningCandidate& candidate) {
  return fs::path(options.out_dir) / fmt::format("{}={}", tuning.flag, candidate.value);
}

/// The options of one candidate, in which nothing but steps and the dev set's perplexity takes time.
ParsedOptions options_of(const Options& options, const Tuning& tuning, const TuningCandidate& candidate) {
  constexpr std::int64_t never = std::int64_t{1} << 40;
  ParsedOptions parsed;
  parsed.options = options;
  assign(*find_flag(tuning.flag), candidate.value, parsed.options);
  parsed.options.out_dir = directory_of(options, tuning, candidate).string();
  parsed.options.steps_per_eval = parsed.options.steps_per_external_eval = never;
  parsed.options.num_keep_ckpts = 1;
  parsed.options.test_prefix.clear();
  // These options, whatever the checkpoint has.
  parsed.options.override_loaded_hparams = true;
  return parsed;
}

void check(const Options& options, const Tuning& tuning) {
  validate(options);
  const std::int64_t last = tuning.last_step(tuning.rungs() - 1);
  const Length& end = options.num_train_steps;
  if (!end.is_known() || end >= last) return;
  throw ddl::Error(
      ddl::ErrorCode::invalid_argument,
      fmt::format("--num_train_steps: found {}, expected at least {}, which the last of {} rungs "
                  "reaches; give more, or a smaller --rung_steps, or fewer --candidates",
                  end.text(), last, tuning.rungs()));
}

/// Throws `mismatch` unless a search that was begun has the same settings.
void check_same(const Tuning& begun, const Tuning& asked, const std::string& path) {
  std::vector<std::string> differences;
  const auto compare = [&](std::string_view name, const std::string& before, const std::string& now) {
    if (before != now) differences.push_back(fmt::format("{} was {}, and is {}", name, before, now));
  };
  const auto values = [](const Tuning& tuning) {
    std::vector<std::string> all;
    for (const TuningCandidate& candidate : tuning.candidates) all.push_back(candidate.value);
    return fmt::format("{}={}", tuning.flag, fmt::join(all, ","));
  };
  compare("--tune", values(begun), values(asked));
  compare("--rung_steps", fmt::format("{}", begun.first_rung), fmt::format("{}", asked.first_rung));
  const Options before = options_from_json(begun.options_json), now = options_from_json(asked.options_json);
  for (const Flag& flag : all_flags()) {
    if (flag.this_run || flag.group == FlagGroup::command || flag.name == asked.flag) continue;
    compare(fmt::format("--{}", flag.name), value_text(flag, before), value_text(flag, now));
  }
  if (differences.empty()) return;
  throw ddl::Error(ddl::ErrorCode::mismatch,
                   fmt::format("{} is of a search with other settings: {}. Give those, or another --out_dir.",
                               path, fmt::join(differences, "; ")));
}

/// The search that --out_dir has, or else a new one.
Tuning begun_or_new(ddl::Context& context, const Options& options, const TunedFlag& tuned) {
  Tuning tuning{std::string(tuned.flag->name), options.rung_steps, {}, to_json(options)};
  for (const std::string& value : tuned.values) tuning.candidates.push_back({value, {}});
  std::string json;
  context.root_only("look for a search that was begun", [&] {
    const fs::path path = fs::path(options.out_dir) / record_name;
    if (!fs::exists(path)) return create_out_dir(options);
    std::ifstream file(path);
    json.assign(std::istreambuf_iterator<char>(file), {});
    check_same(Tuning::from_json(json), tuning, path.string());
  });
  json = context.broadcast_string(json);
  return json.empty() ? tuning : Tuning::from_json(json);
}

/// On each host: gives `to` the encoded text that `from` has, if only one has it.
void share_data(ddl::Context& context, const fs::path& from, const fs::path& to) {
  context.on_all_ranks("share the encoded text", [&] {
    if (context.local_rank() != 0 || !fs::exists(from / data_name) || fs::exists(to / data_name)) return;
    fs::create_directories(to);
    std::error_code ignored;  // without links, each candidate encodes the text
    fs::create_hard_link(from / data_name, to / data_name, ignored);
  });
}

/// Keeps the logs of a candidate that was left behind.
void clean_up(const fs::path& directory) {
  if (!fs::exists(directory)) return;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename() != "log.jsonl" && entry.path().filename() != "train.log")
      fs::remove_all(entry.path());
  }
}

}  // namespace

std::size_t Tuning::rungs() const {
  std::size_t rungs = 0;
  for (std::size_t left = candidates.size(); left > 1; left = (left + 1) / 2) ++rungs;
  return rungs;
}

std::vector<std::size_t> Tuning::taking_part(std::size_t rung) const {
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < candidates.size(); ++i) left.push_back(i);
  for (std::size_t done = 0; done < rung; ++done) {
    const auto score = [&](std::size_t i) { return candidates[i].perplexities.at(done); };
    std::ranges::stable_sort(left, {}, score);
    left.resize((left.size() + 1) / 2);
    std::erase_if(left, [&](std::size_t i) { return !std::isfinite(score(i)); });
  }
  std::ranges::sort(left);
  return left;
}

std::string Tuning::to_json() const {
  using nlohmann::ordered_json;
  ordered_json json = {{"flag", flag}, {"rung_steps", first_rung}, {"candidates", ordered_json::array()}};
  for (const TuningCandidate& candidate : candidates) {
    ordered_json of_one = {{"value", candidate.value}, {"dev_ppl", ordered_json::array()}};
    for (const double perplexity : candidate.perplexities) {
      // JSON has no infinity.
      of_one["dev_ppl"].push_back(std::isfinite(perplexity) ? ordered_json(perplexity) : ordered_json());
    }
    json["candidates"].push_back(std::move(of_one));
  }
  json["options"] = ordered_json::parse(options_json);
  return json.dump(1);
}

Tuning Tuning::from_json(const std::string& text) {
  const std::string what = fmt::format("{} cannot be read, give another --out_dir", record_name);
  return read_json(text, what, [](const auto& json) {
    Tuning tuning{
        json.at("flag"), whole_number<std::int64_t>(json.at("rung_steps")), {}, json.at("options").dump()};
    for (const auto& of_one : json.at("candidates")) {
      TuningCandidate candidate{of_one.at("value"), {}};
      for (const auto& perplexity : of_one.at("dev_ppl")) {
        candidate.perplexities.push_back(perplexity.is_null() ? std::numeric_limits<double>::infinity()
                                                              : perplexity.template get<double>());
      }
      tuning.candidates.push_back(std::move(candidate));
    }
    return tuning;
  });
}

std::optional<Tuning> tune(ddl::Context& context, const ParsedOptions& parsed, std::ostream& out) {
  using Clock = std::chrono::steady_clock;
  const Options& options = parsed.options;
  std::optional<TunedFlag> tuned;
  context.on_all_ranks("check the candidates", [&] { tuned = tuned_flag(options); });
  Tuning tuning = begun_or_new(context, options, *tuned);
  context.on_all_ranks("check the candidates", [&] {
    for (const TuningCandidate& candidate : tuning.candidates)
      check(options_of(options, tuning, candidate).options, tuning);
  });
  std::optional<VocabularyPair> vocabularies;
  const bool some_begin = std::ranges::any_of(
      tuning.candidates, [](const auto& candidate) { return candidate.perplexities.empty(); });
  if (some_begin && tuned->flag->group != FlagGroup::data) vocabularies = make_vocabularies(context, options);
  context.root_only("describe the search", [&] {
    fmt::print(out, "--{}: {} values, {} rungs, the first of {} steps\n", tuning.flag,
               tuning.candidates.size(), tuning.rungs(), tuning.first_rung);
  });
  for (std::size_t rung = 0; rung < tuning.rungs(); ++rung) {
    const std::vector<std::size_t> numbers = tuning.taking_part(rung);
    if (numbers.size() < 2) break;
    for (const std::size_t number : numbers) {
      TuningCandidate& candidate = tuning.candidates[number];
      if (candidate.perplexities.size() > rung) continue;  // before
      const auto begin = Clock::now();
      const fs::path directory = directory_of(options, tuning, candidate);
      std::ofstream log;
      context.root_only("open the candidate's log", [&] {
        fs::create_directories(directory);
        log.open(directory / "train.log", std::ios::app);
      });
      share_data(context, options.out_dir, directory);
      const std::optional<double> perplexity =
          train_part(context, options_of(options, tuning, candidate), tuning.last_step(rung),
                     vocabularies ? &*vocabularies : nullptr, log);
      if (!perplexity) return std::nullopt;
      share_data(context, directory, options.out_dir);
      candidate.perplexities.push_back(*perplexity);
      context.root_only("write what was found", [&] {
        ddl::write_file_atomically(fs::path(options.out_dir) / record_name, tuning.to_json());
        fmt::print(out, "rung {} of {}, step {}: --{}={}: {} ({:.0f} s)\n", rung + 1, tuning.rungs(),
                   tuning.last_step(rung), tuning.flag, candidate.value,
                   std::isfinite(*perplexity) ? fmt::format("dev ppl {:.2f}", *perplexity) : "diverged",
                   std::chrono::duration<double>(Clock::now() - begin).count());
        out.flush();
      });
    }
    const std::vector<std::size_t> left = tuning.taking_part(rung + 1);
    context.root_only("remove what is left behind", [&] {
      for (const std::size_t number : numbers) {
        if (std::ranges::find(left, number) == left.end())
          clean_up(directory_of(options, tuning, tuning.candidates[number]));
      }
    });
  }
  return tuning;
}

}  // namespace nmt
