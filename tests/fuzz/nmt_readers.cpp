// Readers of the trainer: vocabularies, texts, options, and what runs leave behind.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/reader.hpp"
#include "nmt_example/data/embedding_vectors.hpp"
#include "nmt_example/data/encoding.hpp"
#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/data/vocabulary.hpp"
#include "nmt_example/options/config_file.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/tuned_flag.hpp"
#include "nmt_example/report/chart.hpp"
#include "nmt_example/report/run_history.hpp"
#include "nmt_example/text/utf8.hpp"
#include "nmt_example/training/loss_scale.hpp"
#include "nmt_example/training/saved_run.hpp"
#include "nmt_example/training/tuning.hpp"

/// Fontconfig keeps what it has read.
extern "C" const char* __lsan_default_suppressions() { return "leak:libfontconfig"; }

namespace ddl::fuzz {
namespace {

using namespace nmt;
using nmt::Options;

constexpr std::initializer_list<ErrorCode> damaged = {ErrorCode::corrupt_data};
/// Of options, which may also be of tensorflow/nmt.
constexpr std::initializer_list<ErrorCode> bad_options = {ErrorCode::invalid_argument,
                                                          ErrorCode::corrupt_data, ErrorCode::unsupported};

/// Reads; returns nothing if the bytes were refused with one of `codes`. Messages may hold the user's own
/// words, in any language.
template <typename Read>
auto accepted(Read read, std::initializer_list<ErrorCode> codes = damaged)
    -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const Error& error) {
    std::string message = error.what();
    require(!first_invalid_utf8(message), "not UTF-8: " + message);
    require(message.find("\xC2\x9B") == message.npos, "an order to the terminal: " + message);
    std::ranges::replace_if(
        message, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
    const bool is_known = std::ranges::find(codes, error.code()) != codes.end();
    require_message(Error(error.code(), message), is_known ? error.code() : *codes.begin());
    return {};
  }
}

/// A vocabulary must work, and come back equal from its own bytes.
void use(const Vocabulary& vocabulary) {
  const std::string bytes = vocabulary.serialize();
  const Vocabulary copy = Vocabulary::deserialize(bytes);
  require(copy.serialize() == bytes, "does not come back equal");
  const std::string text = " a cat  sat,\tund H\xC3\xA4user \xE2\x96\x81x@@ y \xF0\x9F\x98\x80 </s> 12";
  std::vector<std::int32_t> ids = vocabulary.encode(text);
  const auto size = static_cast<std::int32_t>(vocabulary.size());
  for (const std::int32_t id : ids) require(id >= 0 && id < size, "an id that is out of range");
  require(copy.encode(text) == ids, "its copy encodes otherwise");
  require(vocabulary.word_numbers(text).size() == ids.size(), "not a word for each id");
  static_cast<void>(vocabulary.decode(ids));
  static_cast<void>(vocabulary.join(text));
  const auto pieces = vocabulary.subword_pieces();
  require(!pieces || pieces->scores.size() == vocabulary.size(), "not a score for each piece");
  ids.resize(std::min<std::size_t>(vocabulary.size(), 1000));
  std::iota(ids.begin(), ids.end(), 0);
  for (const std::int32_t id : ids) require(!vocabulary.piece(id).empty(), "a piece without text");
  require(vocabulary.decode(ids).find('\n') == std::string::npos, "more than a line");
  require(vocabulary.word_numbers(ids).size() == ids.size(), "not a word for each id");
}

/// Whether a vocabulary was read. Damage to a SentencePiece model may be found when it is used.
bool works(const std::optional<Vocabulary>& vocabulary) {
  return vocabulary && accepted([&] { return use(*vocabulary), true; });
}

bool takes_vocabulary(std::string_view bytes) {
  return works(accepted([&] { return Vocabulary::deserialize(bytes); }));
}

bool takes_sentencepiece(std::string_view bytes) {
  return works(accepted([&] { return Vocabulary::from_sentencepiece(bytes); }));
}

bool takes_word_list(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto read = [&](WordJoining joining, const SpecialWords& special = {}) {
    return works(accepted([&] { return Vocabulary::from_word_list(file.path(), joining, special); }));
  };
  read(WordJoining::words, {"<go>", "<end>", false});
  const bool takes = read(WordJoining::words);
  require(read(WordJoining::bpe) == takes && read(WordJoining::sentencepiece) == takes,
          "refused for how its words are joined");
  return takes;
}

/// Options that were accepted must come back equal from their own JSON.
void require_equal_from_json(const Options& options) {
  const std::string json = to_json(options);
  require(to_json(options_from_json(json)) == json, "does not come back equal: " + json);
}

bool takes_options_json(std::string_view bytes) {
  const auto options = accepted([&] { return options_from_json(std::string(bytes)); }, bad_options);
  if (options) require_equal_from_json(*options);
  return options.has_value();
}

bool takes_config_file(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto settings = accepted([&] { return options_in_file(file.path(), "config"); }, bad_options);
  if (!settings) return false;
  for (const Setting& setting : *settings) {
    require(setting.where.starts_with(file.path() + ":"), "no line: " + setting.where);
    if (const Flag* const flag = find_flag(setting.name)) {
      Options options;
      if (accepted([&] { return assign(*flag, setting.value, options), true; }, bad_options))
        require_equal_from_json(options);
    }
  }
  return true;
}

/// One argument a line. Those that name a file to read are refused.
bool takes_flags(std::string_view bytes) {
  std::vector<std::string> words = {"ddl_nmt"};
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', begin), bytes.size());
    words.emplace_back(bytes.substr(begin, end - begin));
    if (words.back().starts_with("--config") || words.back().starts_with("--hparams_path")) return false;
    begin = end + 1;
  }
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  const auto parsed = accepted(
      [&] { return parse_options(static_cast<int>(arguments.size()), arguments.data()); }, bad_options);
  if (!parsed) return false;
  require_equal_from_json(parsed->options);
  require(!describe_options(parsed->options).empty() && !config_of(parsed->options).empty(), "no text");
  const Options changed = with_explicit_options(Options(), *parsed);
  static_cast<void>(changes_from_saved(Options(), changed, *parsed));
  static_cast<void>(flags_without_effect(changed, *parsed));
  return true;
}

bool takes_tuned_flag(std::string_view bytes) {
  Options options;
  options.tune = bytes;
  const auto tuned = accepted([&] { return tuned_flag(options); }, bad_options);
  if (!tuned) return false;
  require(tuned->values.size() >= 2, "nothing to choose from");
  for (const std::string& value : tuned->values) {
    Options tried;
    assign(*tuned->flag, value, tried);
    require(value_text(*tuned->flag, tried) == value, "does not come back equal");
  }
  return true;
}

bool takes_inference_list(std::string_view bytes) {
  const auto numbers =
      accepted([&] { return inference_indices(std::string(bytes), 100); }, {ErrorCode::invalid_argument});
  return numbers && std::ranges::all_of(*numbers, [](std::size_t number) { return number < 100; });
}

bool takes_run_state(std::string_view bytes) {
  const auto state = accepted([&] { return RunState::from_json(std::string(bytes)); });
  if (!state) return false;
  const std::string json = state->to_json();
  require(RunState::from_json(json).to_json() == json, "does not come back equal: " + json);
  return true;
}

bool takes_loss_scale(std::string_view bytes) {
  bool takes = false;
  for (const LossScaling rule : {LossScaling::backoff, LossScaling::log_max}) {
    LossScale scale;
    scale.rule = rule;
    if (!accepted([&] { return restore(scale, bytes), true; })) continue;
    LossScale again;
    again.rule = rule;
    restore(again, state_of(scale));
    require(state_of(again) == state_of(scale), "does not come back equal");
    takes = true;
  }
  return takes;
}

bool takes_tuning(std::string_view bytes) {
  const auto tuning = accepted([&] { return Tuning::from_json(std::string(bytes)); });
  if (!tuning) return false;
  const std::string json = tuning->to_json();
  require(Tuning::from_json(json).to_json() == json, "does not come back equal: " + json);
  // As far as the candidates have been trained.
  for (std::size_t rung = 0; rung <= tuning->rungs(); ++rung) {
    const auto numbers = tuning->taking_part(rung);
    require(
        std::ranges::is_sorted(numbers) && (numbers.empty() || numbers.back() < tuning->candidates.size()),
        "no candidates");
    const auto is_left = [&](std::size_t number) {
      return tuning->candidates[number].perplexities.size() <= rung;
    };
    if (std::ranges::any_of(numbers, is_left)) break;
  }
  return true;
}

/// Those of three words.
const Vocabulary& small_vocabulary() {
  static const Vocabulary vocabulary =
      Vocabulary::from_word_list(MemoryFile("the\ncat\nH\xC3\xA4user\n").path());
  return vocabulary;
}

bool takes_embedding_vectors(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto vectors = accepted([&] { return read_embedding_vectors(file.path(), small_vocabulary()); });
  if (!vectors) return false;
  require(vectors->size > 0 && vectors->values.size() == 3 * static_cast<std::size_t>(vectors->size),
          "not a vector for each word");
  require(std::ranges::all_of(vectors->values, [](float value) { return std::isfinite(value); }),
          "no number");
  return true;
}

bool takes_encoded_data(std::string_view bytes) {
  constexpr std::uint64_t key = 0x1122334455667788;
  const MemoryFile file(bytes);
  const auto data = map_dataset(file.path(), key, true);
  if (!data) return false;
  const DatasetFacts& facts = data->facts();
  require(data->size() == facts.pairs, "another number of pairs");
  std::size_t source_tokens = 0, target_tokens = 0, longest = 0;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < data->size(); ++i) {
    source_tokens += data->source(i).size();
    target_tokens += data->target(i).size();
    longest = std::max({longest, data->source(i).size(), data->target(i).size()});
    for (const auto side : {data->source(i), data->target(i)})
      sum = std::accumulate(side.begin(), side.end(), sum);
  }
  require(sum >= 0 && source_tokens == facts.source_tokens && target_tokens == facts.target_tokens &&
              longest == std::max(facts.longest_source, facts.longest_target),
          "another number of tokens");
  Batch batch;
  std::vector<std::size_t> samples(data->size());
  std::iota(samples.begin(), samples.end(), std::size_t{0});
  fill_batch(*data, samples, batch);
  return true;
}

bool takes_run_log(std::string_view bytes) {
  const MemoryFile file(bytes);
  const auto history = accepted([&] { return read_history(file.path()); });
  if (!history) return false;
  Chart chart{.title = "Values", .unit = "", .lines = {}};
  for (const auto& [name, points] : *history) {
    require(!points.empty(), "a name without values");
    chart.lines.push_back({name, points, chart.lines.empty()});
  }
  Chart logarithms = chart;
  logarithms.logarithmic = true;
  try {
    require(draw("fuzzed", {chart, logarithms}, ImageFormat::svg).starts_with("<?xml"), "no picture");
  } catch (const Error& error) {
    require(error.code() == ErrorCode::unsupported, error.what());  // a build without Cairo
  }
  return true;
}

/// Each line must be whole text, and the last bytes must have been read.
bool takes_lines(const std::filesystem::path& path) {
  const auto lines = accepted([&] { return read_lines(path); });
  if (!lines) return false;
  for (const std::string& line : *lines) {
    require(line.size() <= max_line_bytes && !first_invalid_utf8(line), "a line that is no text");
    require(line.find('\n') == line.npos && line.find('\0') == line.npos, "more than a line");
  }
  return true;
}

/// What `ParallelReader` makes of a suffix is the name of a file in memory.
std::string suffix_of(const MemoryFile& file) { return file.path().substr(file.path().rfind('/')); }

/// Two texts with a NUL byte between them; without one, the same text twice.
bool takes_parallel_text(std::string_view bytes) {
  const std::size_t end = bytes.find('\0');
  const MemoryFile source(bytes.substr(0, end));
  const MemoryFile target(end == bytes.npos ? bytes : bytes.substr(end + 1));
  const auto text =
      accepted([&] { return read_parallel_text("/proc/self/fd/", suffix_of(source), suffix_of(target)); });
  require(!text || (text->size() > 0 && text->source.size() == text->target.size()), "no pairs");
  const bool takes_source = takes_lines(source.path()), takes_target = takes_lines(target.path());
  require(!text || (takes_source && takes_target), "a side alone is refused");
  if (!text) return false;
  const auto data = accepted([&] { return encode(*text, small_vocabulary(), small_vocabulary(), 5, 5); },
                             {ErrorCode::invalid_argument});
  require(!data || (data->longest_source() <= 5 && data->longest_target() <= 5), "not cut");
  return true;
}

bool takes_gzip_text(std::string_view bytes) {
  namespace fs = std::filesystem;
  const MemoryFile file(bytes);
  const fs::path link = fs::temp_directory_path() / ("fuzzed-" + std::to_string(getpid()) + ".gz");
  fs::remove(link);
  fs::create_symlink(file.path(), link);
  const bool takes = takes_lines(link);
  fs::remove(link);
  return takes;
}

}  // namespace

std::span<const Reader> readers() {
  static constexpr std::array all = {
      Reader{"config_file", takes_config_file},
      Reader{"embedding_vectors", takes_embedding_vectors},
      Reader{"encoded_data", takes_encoded_data},
      Reader{"gzip_text", takes_gzip_text},
      Reader{"inference_list", takes_inference_list},
      Reader{"loss_scale", takes_loss_scale},
      Reader{"options_json", takes_options_json},
      Reader{"parallel_text", takes_parallel_text},
      Reader{"run_log", takes_run_log},
      Reader{"run_state", takes_run_state},
      Reader{"sentencepiece", takes_sentencepiece},
      Reader{"trainer_flags", takes_flags},
      Reader{"tuned_flag", takes_tuned_flag},
      Reader{"tuning", takes_tuning},
      Reader{"vocabulary", takes_vocabulary},
      Reader{"word_list", takes_word_list},
  };
  return all;
}

}  // namespace ddl::fuzz
