#pragma once

#include <fmt/format.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddl/error.hpp"
#include "topology/json_text.hpp"

// JSON for value types. `describe(fields, value)`, found in the namespace of the value's type, lists the
// type's fields once for both directions: `fields` is a `JsonFieldReader` or a `JsonFieldWriter`.
namespace ddl::topology {

template <typename Type, typename Plain>
concept MaybeConst = std::same_as<std::remove_const_t<Type>, Plain>;

/// The JSON value that is accepted at one place of a text, and where it is stored.
struct JsonSlot {
  struct Field {
    std::string_view name;
    bool is_optional = false;
    std::function<JsonSlot()> slot;  ///< Called when the key is found.
  };

  /// Stores a scalar and returns nothing, or returns what is expected in its place. Called with an empty list
  /// or object where a list or object is not accepted; it must refuse those.
  std::function<std::optional<std::string>(const nlohmann::json&)> value;
  std::function<std::vector<Field>()> fields = {};  ///< For an object.
  std::function<JsonSlot()> element = {};           ///< For a list: the slot of the next element.
  std::size_t most_elements = 0;
};

/// Fills `slot` from `text`, which is parsed as a stream: memory follows what is accepted, not the size of
/// the text. Throws `corrupt_data` naming `source`, the path inside it ("nodes[2].kind"), what was found and
/// what was expected: not JSON, cut off, unknown, repeated or missing keys, and values that a slot refuses.
void read_json(std::string_view text, std::string_view source, const JsonSlot& slot);

/// "0x00000000000000ff", as text because many JSON readers lose digits of numbers above 2^53.
std::string hexadecimal(std::uint64_t value);
std::optional<std::uint64_t> from_hexadecimal(std::string_view text);
constexpr std::string_view expected_hexadecimal = "0x and 16 hexadecimal digits in lower case";

/// Limit of a string slot: refuses the empty string.
struct NotEmpty {};

class JsonFieldReader {
 public:
  using Json = nlohmann::json;

  void version(std::string_view name, int version) {
    add(name, [version] {
      return JsonSlot{[version](const Json& found) -> std::optional<std::string> {
        if (found == version) return {};
        return fmt::format("{}, the version of the schema that this build reads", version);
      }};
    });
  }
  /// `limits` are passed on to the value's `slot`.
  template <typename Value, typename... Limits>
  void operator()(std::string_view name, Value& to, const Limits&... limits) {
    add(name, [&to, limits...] { return slot(to, limits...); });
  }
  /// A field that may be missing, and is written only if it differs from `otherwise`.
  template <typename Value, typename... Limits>
  void optional(std::string_view name, Value& to, const auto& /*otherwise*/, const Limits&... limits) {
    (*this)(name, to, limits...);
    fields_.back().is_optional = true;
  }
  /// A field that is stored as text. `from_text` returns nothing for a text that does not match `expected`.
  template <typename Value, typename FromText>
  void text(std::string_view name, Value& to, const auto& /*to_text*/, const FromText& from_text,
            std::string_view expected) {
    add(name, [&to, from_text, expected] {
      return converted(to, from_text, [expected] { return std::string(expected); });
    });
  }

  static JsonSlot slot(std::string& to) { return scalar(to, &Json::is_string, "a string"); }
  static JsonSlot slot(std::string& to, NotEmpty) {
    const auto fits = [](const Json& found) {
      return found.is_string() && !found.get_ref<const std::string&>().empty();
    };
    return scalar(to, fits, "a string that is not empty");
  }
  static JsonSlot slot(bool& to) { return scalar(to, &Json::is_boolean, "true or false"); }
  static JsonSlot slot(double& to) { return scalar(to, &Json::is_number, "a number"); }
  static JsonSlot slot(double& to, double most) {
    const auto fits = [most](const Json& found) {
      return found.is_number() && found.get<double>() >= 0 && found.get<double>() <= most;
    };
    return scalar(to, fits, "a number from 0 to {}", most);
  }
  static JsonSlot slot(std::uint64_t& to) {
    return scalar(to, &Json::is_number_unsigned, "a whole number from 0");
  }
  template <std::integral Number>
  static JsonSlot slot(Number& to) {
    return whole(to, std::numeric_limits<Number>::min(), std::numeric_limits<Number>::max());
  }
  static JsonSlot slot(int& to, int least, int most) { return whole(to, least, most); }
  /// Up to `n` elements; those that the text lacks keep their values.
  template <typename Element, std::size_t n>
  static JsonSlot slot(std::array<Element, n>& to) {
    return {.value = [](const Json&) { return std::optional<std::string>("a list"); },
            .element = [&to, i = std::size_t{0}]() mutable { return slot(to[i++]); },
            .most_elements = n};
  }
  /// One of the enumerators `all`, by its `to_string` name.
  template <typename Enum, typename All>
  requires std::is_enum_v<Enum>
  static JsonSlot slot(Enum& to, const All& all) {
    return converted(
        to, [all](std::string_view text) { return named(all, text); }, [all] { return names(all); });
  }
  template <typename Value, typename... Limits>
  static JsonSlot slot(std::optional<Value>& to, const Limits&... limits) {
    return slot(to.emplace(), limits...);
  }
  template <typename Element, typename... Limits>
  static JsonSlot slot(std::vector<Element>& to, std::size_t most, const Limits&... limits) {
    to.clear();
    return {.value = [](const Json&) { return std::optional<std::string>("a list"); },
            .element = [&to, limits...] { return slot(to.emplace_back(), limits...); },
            .most_elements = most};
  }
  template <typename Object>
  static JsonSlot slot(Object& to) {
    return {.value = [](const Json&) { return std::optional<std::string>("an object"); },
            .fields =
                [&to] {
                  JsonFieldReader reader;
                  describe(reader, to);
                  return std::move(reader.fields_);
                }};
  }

 private:
  template <typename Number>
  static JsonSlot whole(Number& to, Number least, Number most) {
    const auto fits = [least, most](const Json& found) {
      const auto is_within = [&](auto number) {
        return std::cmp_greater_equal(number, least) && std::cmp_less_equal(number, most);
      };
      if (found.is_number_unsigned()) return is_within(found.get<std::uint64_t>());
      return found.is_number_integer() && is_within(found.get<std::int64_t>());
    };
    return scalar(to, fits, "a whole number from {} to {}", least, most);
  }
  /// `expected`, formatted with `limits`, describes what was expected if a value does not fit.
  template <typename To, typename Fits, typename... Limits>
  static JsonSlot scalar(To& to, Fits fits, std::string_view expected, Limits... limits) {
    return {[=, &to](const Json& found) -> std::optional<std::string> {
      if (!std::invoke(fits, found)) return fmt::format(fmt::runtime(expected), limits...);
      found.get_to(to);
      return {};
    }};
  }
  template <typename To, typename FromText, typename Expected>
  static JsonSlot converted(To& to, FromText from_text, Expected expected) {
    return {[=, &to](const Json& found) -> std::optional<std::string> {
      if (!found.is_string()) return expected();
      auto value = from_text(found.get_ref<const std::string&>());
      if (!value) return expected();
      to = *std::move(value);
      return {};
    }};
  }
  void add(std::string_view name, std::function<JsonSlot()> slot) {
    fields_.push_back({name, false, std::move(slot)});
  }

  std::vector<JsonSlot::Field> fields_;
};

class JsonFieldWriter {
 public:
  using Json = nlohmann::ordered_json;

  void version(std::string_view name, int version) { object_[std::string(name)] = version; }
  void operator()(std::string_view name, const auto& value, const auto&... /*limits*/) {
    object_[std::string(name)] = json(value);
  }
  void optional(std::string_view name, const auto& value, const auto& otherwise, const auto&... /*limits*/) {
    if (value != otherwise) (*this)(name, value);
  }
  void text(std::string_view name, const auto& value, const auto& to_text, const auto& /*from_text*/,
            std::string_view /*expected*/) {
    object_[std::string(name)] = to_text(value);
  }

  template <typename Value>
  static Json json(const Value& value) {
    JsonFieldWriter writer;
    if constexpr (std::is_enum_v<Value>) {
      return to_string(value);
    } else if constexpr (requires { describe(writer, value); }) {
      describe(writer, value);
      return writer.object_;
    } else {
      return value;
    }
  }
  template <typename Value>
  static Json json(const std::optional<Value>& value) {
    return json(*value);
  }
  template <typename Element>
  static Json json(const std::vector<Element>& value) {
    Json list = Json::array();
    for (const Element& element : value) list.push_back(json(element));
    return list;
  }

 private:
  Json object_ = Json::object();
};

/// Bytes that are not UTF-8 are replaced.
template <typename Value>
std::string json_line(const Value& value) {
  return JsonFieldWriter::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Throws as `read_json` does.
template <typename Value>
Value parsed_json(std::string_view text, std::string_view source) {
  Value value;
  read_json(text, source, JsonFieldReader::slot(value));
  return value;
}

}  // namespace ddl::topology
