#include "topology/json_fields.hpp"

#include <algorithm>
#include <charconv>

namespace ddl::topology {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return value.is_string() ? in_quotes(value.get_ref<const std::string&>()) : value.dump();
}

class Reader : public json::json_sax_t {
 public:
  Reader(std::string_view source, const JsonSlot& root) : source_(source), root_(root) {}

  bool null() override { return take(nullptr, next_slot()); }
  bool boolean(bool value) override { return take(value, next_slot()); }
  bool binary(binary_t&) override { return take(json::array(), next_slot()); }
  bool number_integer(number_integer_t value) override { return take(value, next_slot()); }
  bool number_unsigned(number_unsigned_t value) override { return take(value, next_slot()); }
  bool number_float(number_float_t value, const string_t&) override { return take(value, next_slot()); }
  bool string(string_t& value) override { return take(std::move(value), next_slot()); }

  bool start_object(std::size_t) override {
    const JsonSlot slot = next_slot();
    if (!slot.fields) return take(json::object(), slot);
    open_.push_back({.fields = slot.fields()});
    open_.back().seen.resize(open_.back().fields.size());
    return true;
  }

  bool key(string_t& name) override {
    Open& object = open_.back();
    const auto found = std::ranges::find(object.fields, std::string_view(name), &JsonSlot::Field::name);
    if (found == object.fields.end()) {
      std::vector<std::string_view> known;
      for (const JsonSlot::Field& field : object.fields) known.push_back(field.name);
      fail(path(open_.size() - 1), fmt::format("unknown key {}", in_quotes(name)),
           fmt::format("one of {}", fmt::join(known, ", ")));
    }
    object.at = as_index(found - object.fields.begin());
    if (object.seen[object.at]) {
      fail(path(open_.size() - 1), fmt::format("key '{}' a second time", name), "each key once");
    }
    object.seen[object.at] = true;
    return true;
  }

  bool end_object() override {
    const Open& object = open_.back();
    for (std::size_t i = 0; i < object.fields.size(); ++i) {
      if (!object.seen[i] && !object.fields[i].is_optional) {
        fail(path(open_.size() - 1), fmt::format("no key '{}'", object.fields[i].name), "one");
      }
    }
    open_.pop_back();
    return true;
  }

  bool start_array(std::size_t) override {
    const JsonSlot slot = next_slot();
    if (!slot.element) return take(json::array(), slot);
    open_.push_back({.element = slot.element, .most_elements = slot.most_elements});
    return true;
  }

  bool end_array() override {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail(fmt::format("byte {}", position), json_problem(error), "one JSON object, whole");
  }

 private:
  /// An open object, or an open list if `element` is set.
  struct Open {
    std::vector<JsonSlot::Field> fields = {};
    std::vector<bool> seen = {};
    std::function<JsonSlot()> element = {};
    std::size_t most_elements = 0;
    std::size_t at = 0;  // the index of the current field; of a list, how many elements have begun
  };

  [[noreturn]] void fail(std::string_view path, std::string_view found, std::string_view expected) const {
    fail_with(ErrorCode::corrupt_data, "{}: {}: found {}, expected {}", source_, path, found, expected);
  }

  /// Path of the value being read, through the first `levels` open lists and objects.
  [[nodiscard]] std::string path(std::size_t levels) const {
    std::string text;
    for (const Open& open : std::span(open_).first(levels)) {
      text += open.element   ? fmt::format("[{}]", open.at - 1)
              : text.empty() ? std::string(open.fields[open.at].name)
                             : fmt::format(".{}", open.fields[open.at].name);
    }
    return text.empty() ? "top level" : text;
  }

  JsonSlot next_slot() {
    if (open_.empty()) return root_;
    Open& open = open_.back();
    if (!open.element) return open.fields[open.at].slot();
    if (open.at == open.most_elements) {
      fail(path(open_.size() - 1), fmt::format("more than {} of them", open.most_elements),
           fmt::format("at most {}", open.most_elements));
    }
    ++open.at;
    return open.element();
  }

  bool take(const json& value, const JsonSlot& slot) const {
    if (const auto expected = slot.value(value)) fail(path(open_.size()), shown(value), *expected);
    return true;
  }

  std::string_view source_;
  const JsonSlot& root_;
  std::vector<Open> open_;
};

}  // namespace

void read_json(std::string_view text, std::string_view source, const JsonSlot& slot) {
  Reader reader(source, slot);
  json::sax_parse(text, &reader);  // returns false only after parse_error, which throws
}

std::string hexadecimal(std::uint64_t value) { return fmt::format("0x{:016x}", value); }

std::optional<std::uint64_t> from_hexadecimal(std::string_view text) {
  std::uint64_t value = 0;
  const std::string_view digits = text.substr(std::min<std::size_t>(text.size(), 2));
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return text == hexadecimal(value) ? std::optional(value) : std::nullopt;
}

}  // namespace ddl::topology
