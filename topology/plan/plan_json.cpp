// Plans as JSON. The reader is a SAX handler: memory follows what is accepted, not what is sent.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "ddl/error.hpp"
#include "ddl/topology/plan.hpp"
#include "topology/json_text.hpp"
#include "topology/plan/algorithms.hpp"

namespace ddl::topology {
namespace {

using json = nlohmann::json;
using nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr std::size_t most_ranks = std::size_t{1} << 24;
constexpr double longest_us = 1e15;

constexpr std::array types = {DataType::u8,  DataType::i32, DataType::i64, DataType::f32,
                              DataType::f64, DataType::f16, DataType::bf16};
constexpr std::array wires = {DataType::bf16, DataType::f16};
constexpr std::array modes = {Mode::explore,        Mode::rings, Mode::nccl, Mode::nccl_per_dimension,
                              Mode::scatter_gather, Mode::mpi};
constexpr std::array carriers = {Carrier::shared_memory, Carrier::cuda_ipc, Carrier::network,
                                 Carrier::mpi,           Carrier::nccl,     Carrier::host_memory};

/// JSON's numbers lose digits above 2^53 in many readers; a hash is text.
std::string hexadecimal(std::uint64_t value) { return fmt::format("0x{:016x}", value); }

class Reader : public json::json_sax_t {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  Plan plan() {
    if (plan_.order.empty()) fail("order", "no ranks", "at least one");
    const int ranks = static_cast<int>(plan_.order.size());
    const auto checked = [&](std::string_view prefix, auto action) {
      try {
        action();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
        std::string_view what = error.what();
        if (what.starts_with("plan: ")) what.remove_prefix(6);
        throw Error(ErrorCode::corrupt_data, fmt::format("{}: {}{}", source_, prefix, printable(what)));
      }
    };
    checked("decomposition: ", [&] { plan_.decomposition = Decomposition::parse(decomposition_, ranks); });
    checked("", [&] { require_valid(plan_); });
    return std::move(plan_);
  }

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool binary(binary_t&) override { refuse("bytes"); }
  bool number_integer(number_integer_t value) override { refuse(fmt::format("{}", value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (level_ == Level::root && key_ == version_key) {
      if (value != format_version) refuse(fmt::format("{}", value));
    } else if (level_ == Level::root && key_ == "bytes") {
      plan_.bytes = value;
    } else if (level_ == Level::root && key_ == "chunks") {
      plan_.chunks = static_cast<int>(std::min<number_unsigned_t>(value, 1'000'000));
    } else if (level_ == Level::list && key_ == "order") {
      if (plan_.order.size() == most_ranks) refuse("one more rank");
      if (value >= most_ranks) refuse(fmt::format("{}", value));
      plan_.order.push_back(static_cast<int>(value));
    } else {
      return number_float(static_cast<double>(value), {});
    }
    return true;
  }
  bool number_float(number_float_t value, const string_t&) override {
    const bool is_list = level_ == Level::list && key_ == "phase_us";
    const bool is_time = level_ == Level::root && (key_ == "predicted_us" || key_ == "bound_us");
    const bool is_in_range = value >= 0 && value <= longest_us;
    if ((!is_list && !is_time) || !is_in_range) refuse(fmt::format("{}", value));
    if (is_list) {
      check_list(plan_.phase_us.size());
      plan_.phase_us.push_back(value);
    } else {
      (key_ == "bound_us" ? plan_.bound_us : plan_.predicted_us) = value;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (level_ == Level::list && key_ == "notes") {
      check_list(plan_.notes.size());
      plan_.notes.push_back(std::move(value));
    } else if (level_ == Level::record) {
      PlanDimension& dimension = plan_.dimensions.back();
      if (record_key_ == "algorithm") {
        set(dimension.algorithm, all_algorithms(), value);
      } else if (record_key_ == wire_key) {
        set(dimension.wire.emplace(), wires, value);
      } else {
        set(dimension.carrier, carriers, value);
      }
    } else if (level_ == Level::root) {
      root_text(std::move(value));
    } else {
      refuse(in_quotes(value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ == Level::outside) {
      level_ = Level::root;
    } else if (level_ == Level::list && key_ == "dimensions") {
      check_list(plan_.dimensions.size());
      plan_.dimensions.emplace_back();
      record_keys_seen_.clear();
      level_ = Level::record;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    const bool is_root = level_ == Level::root;
    const auto known = is_root ? std::span<const std::string_view>(root_keys) : record_keys;
    auto& seen = is_root ? root_keys_seen_ : record_keys_seen_;
    const auto found = std::ranges::find(known, std::string_view(value));
    if (found == known.end()) {
      fail(object_path(), fmt::format("unknown key {}", in_quotes(value)),
           fmt::format("one of {}", fmt::join(known, ", ")));
    }
    if (std::ranges::find(seen, *found) != seen.end()) {
      fail(object_path(), fmt::format("key '{}' a second time", *found), "each key once");
    }
    seen.push_back(*found);
    (is_root ? key_ : record_key_) = *found;
    return true;
  }

  bool end_object() override {
    const bool is_root = level_ == Level::root;
    const auto& seen = is_root ? root_keys_seen_ : record_keys_seen_;
    for (const std::string_view known :
         is_root ? std::span<const std::string_view>(root_keys) : record_keys) {
      if (known != wire_key && std::ranges::find(seen, known) == seen.end()) {
        fail(object_path(), fmt::format("no key '{}'", known), "it to be there");
      }
    }
    level_ = is_root ? Level::outside : Level::list;
    return true;
  }

  bool start_array(std::size_t) override {
    constexpr std::array<std::string_view, 4> lists = {"dimensions", "order", "phase_us", "notes"};
    if (level_ != Level::root || std::ranges::find(lists, key_) == lists.end()) refuse("a list");
    level_ = Level::list;
    return true;
  }

  bool end_array() override {
    level_ = Level::root;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail(fmt::format("byte {}", position), json_problem(error), "one JSON object, whole");
  }

 private:
  enum class Level { outside, root, list, record };

  static constexpr std::string_view version_key = "ddl_plan";
  static constexpr std::size_t longest_list = 4096;  // of dimensions, phases, notes
  static constexpr std::array<std::string_view, 15> root_keys = {
      version_key,     "collective", "bytes",    "type",          "mode",
      "decomposition", "dimensions", "order",    "order_name",    "chunks",
      "predicted_us",  "phase_us",   "bound_us", "topology_hash", "notes"};
  static constexpr std::string_view wire_key = "wire";  // which a dimension need not have
  static constexpr std::array record_key_names = {std::string_view("algorithm"), std::string_view("carrier"),
                                                  wire_key};
  static constexpr std::span<const std::string_view> record_keys = record_key_names;

  [[noreturn]] void fail(std::string_view path, std::string_view found, std::string_view expected) const {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{}: {}: found {}, expected {}", source_, path, found, expected));
  }

  [[nodiscard]] std::string object_path() const {
    return level_ == Level::record ? fmt::format("dimensions[{}]", plan_.dimensions.size() - 1) : "top level";
  }

  [[nodiscard]] std::size_t list_size() const {
    return key_ == "order"        ? plan_.order.size()
           : key_ == "phase_us"   ? plan_.phase_us.size()
           : key_ == "dimensions" ? plan_.dimensions.size()
                                  : plan_.notes.size();
  }

  static std::string expected_at(std::string_view key) {
    if (key == version_key) {
      return fmt::format("the number {}, the version of the schema that this build reads", format_version);
    }
    if (key == "bytes") return "a whole number from 0";
    if (key == "chunks") return "a whole number from 1 to 64";
    if (key == "predicted_us" || key == "bound_us")
      return fmt::format("a number from 0 to {:.0e}", longest_us);
    if (key == "dimensions" || key == "order" || key == "phase_us" || key == "notes") return "a list";
    return "a string";
  }

  /// Refuses a value that has no business where it stands.
  [[noreturn]] void refuse(std::string_view found) const {
    switch (level_) {
      case Level::outside:
        fail("top level", found, "an object");
      case Level::root:
        fail(key_, found, expected_at(key_));
      case Level::list:
        fail(fmt::format("{}[{}]", key_, list_size()), found,
             key_ == "order"        ? fmt::format("a rank, at most {} of them", most_ranks)
             : key_ == "phase_us"   ? fmt::format("a number from 0 to {:.0e}", longest_us)
             : key_ == "dimensions" ? "an object"
                                    : "a string");
      case Level::record:
        fail(fmt::format("{}.{}", object_path(), record_key_), found, "a string");
    }
    throw Error(ErrorCode::internal, "plan_from_json: unknown level");
  }

  void check_list(std::size_t size) const {
    if (size >= longest_list) {
      fail(key_, fmt::format("more than {} entries", longest_list), "at most as many");
    }
  }

  template <typename Enum, typename All>
  void set(Enum& target, const All& all, std::string_view text) const {
    const auto value = named(all, text);
    if (!value) {
      fail(level_ == Level::record ? fmt::format("{}.{}", object_path(), record_key_) : std::string(key_),
           in_quotes(text), names(all));
    }
    target = *value;
  }

  void root_text(std::string value) {
    if (key_ == "collective") {
      set(plan_.collective, planned_collectives(), value);
    } else if (key_ == "type") {
      set(plan_.type, types, value);
    } else if (key_ == "mode") {
      set(plan_.mode, modes, value);
    } else if (key_ == "decomposition") {
      decomposition_ = std::move(value);
    } else if (key_ == "order_name") {
      plan_.order_name = std::move(value);
    } else if (key_ == "topology_hash") {
      const std::string_view digits = std::string_view(value).substr(std::min<std::size_t>(value.size(), 2));
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), plan_.topology_hash, 16);
      const bool is_number = error == std::errc{} && end == digits.data() + digits.size();
      if (!is_number || value != hexadecimal(plan_.topology_hash)) {
        fail(key_, in_quotes(value), "0x and 16 hexadecimal digits in lower case");
      }
    } else {
      refuse(in_quotes(value));
    }
  }

  std::string_view source_;
  Level level_ = Level::outside;
  std::string_view key_;
  std::string_view record_key_;
  std::vector<std::string_view> root_keys_seen_;
  std::vector<std::string_view> record_keys_seen_;
  std::string decomposition_;
  Plan plan_ = [] {
    Plan empty;
    empty.dimensions.clear();
    empty.order.clear();
    return empty;
  }();
};

}  // namespace

std::string to_json(const Plan& plan) {
  std::string text = "{";
  std::string_view separator = "\n  ";
  const auto add = [&](std::string_view key, const ordered_json& value) {
    fmt::format_to(std::back_inserter(text), "{}\"{}\": {}", separator, key,
                   value.dump(-1, ' ', true, ordered_json::error_handler_t::replace));
    separator = ",\n  ";
  };
  ordered_json dimensions = ordered_json::array();
  for (const PlanDimension& dimension : plan.dimensions) {
    ordered_json& entry = dimensions.emplace_back(ordered_json{
        {"algorithm", to_string(dimension.algorithm)}, {"carrier", to_string(dimension.carrier)}});
    if (dimension.wire) entry["wire"] = to_string(*dimension.wire);
  }
  add("ddl_plan", format_version);
  add("collective", to_string(plan.collective));
  add("bytes", plan.bytes);
  add("type", to_string(plan.type));
  add("mode", to_string(plan.mode));
  add("decomposition", to_string(plan.decomposition));
  add("dimensions", dimensions);
  add("order", plan.order);
  add("order_name", plan.order_name);
  add("chunks", plan.chunks);
  add("predicted_us", plan.predicted_us);
  add("phase_us", plan.phase_us);
  add("bound_us", plan.bound_us);
  add("topology_hash", hexadecimal(plan.topology_hash));
  add("notes", plan.notes);
  text += "\n}\n";
  return text;
}

Plan plan_from_json(std::string_view text, std::string_view source) {
  Reader reader(source);
  json::sax_parse(text, &reader);  // false only after parse_error, which throws
  return reader.plan();
}

}  // namespace ddl::topology
