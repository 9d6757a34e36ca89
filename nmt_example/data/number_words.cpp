#include "nmt_example/data/number_words.hpp"

#include <fmt/format.h>

#include <array>

#include "ddl/error.hpp"

namespace nmt {
namespace {

using namespace std::string_view_literals;

constexpr std::array english_small = {"zero"sv,    "one"sv,     "two"sv,       "three"sv,    "four"sv,
                                      "five"sv,    "six"sv,     "seven"sv,     "eight"sv,    "nine"sv,
                                      "ten"sv,     "eleven"sv,  "twelve"sv,    "thirteen"sv, "fourteen"sv,
                                      "fifteen"sv, "sixteen"sv, "seventeen"sv, "eighteen"sv, "nineteen"sv};
constexpr std::array english_tens = {""sv,      ""sv,      "twenty"sv,  "thirty"sv, "forty"sv,
                                     "fifty"sv, "sixty"sv, "seventy"sv, "eighty"sv, "ninety"sv};
constexpr std::array english_small_ordinal = {""sv,          "first"sv,       "second"sv,     "third"sv,
                                              "fourth"sv,    "fifth"sv,       "sixth"sv,      "seventh"sv,
                                              "eighth"sv,    "ninth"sv,       "tenth"sv,      "eleventh"sv,
                                              "twelfth"sv,   "thirteenth"sv,  "fourteenth"sv, "fifteenth"sv,
                                              "sixteenth"sv, "seventeenth"sv, "eighteenth"sv, "nineteenth"sv};

constexpr std::array german_small = {"null"sv,     "eins"sv,     "zwei"sv,     "drei"sv,     "vier"sv,
                                     "fünf"sv,     "sechs"sv,    "sieben"sv,   "acht"sv,     "neun"sv,
                                     "zehn"sv,     "elf"sv,      "zwölf"sv,    "dreizehn"sv, "vierzehn"sv,
                                     "fünfzehn"sv, "sechzehn"sv, "siebzehn"sv, "achtzehn"sv, "neunzehn"sv};
constexpr std::array german_tens = {""sv,        ""sv,        "zwanzig"sv, "dreißig"sv, "vierzig"sv,
                                    "fünfzig"sv, "sechzig"sv, "siebzig"sv, "achtzig"sv, "neunzig"sv};

void require(int value, int low, int high, std::string_view what) {
  if (value < low || value > high) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("{} {} has no words here; expected {} to {}", what, value, low, high));
  }
}

std::string english_below_hundred(int value) {
  if (value < 20) return std::string(english_small[value]);
  std::string words(english_tens[value / 10]);
  if (value % 10 != 0) words.append(" ").append(english_small[value % 10]);
  return words;
}

std::string english_below_thousand(int value) {
  if (value < 100) return english_below_hundred(value);
  std::string words(english_small[value / 100]);
  words += " hundred";
  if (value % 100 != 0) words += " and " + english_below_hundred(value % 100);
  return words;
}

/// `one` is the form of a final 1: "eins", or "ein" inside a longer word.
std::string german_below_hundred(int value, std::string_view one) {
  if (value == 1) return std::string(one);
  if (value < 20) return std::string(german_small[value]);
  std::string word;
  if (value % 10 != 0) word.append(value % 10 == 1 ? "ein" : german_small[value % 10]).append("und");
  return word.append(german_tens[value / 10]);
}

std::string german_below_thousand(int value, std::string_view one) {
  if (value < 100) return german_below_hundred(value, one);
  std::string word = german_below_hundred(value / 100, "ein") + "hundert";
  if (value % 100 != 0) word += german_below_hundred(value % 100, one);
  return word;
}

}  // namespace

std::string english_cardinal(int value) {
  require(value, 0, 999'999, "number");
  if (value < 1000) return english_below_thousand(value);
  std::string words = english_below_thousand(value / 1000) + " thousand";
  const int rest = value % 1000;
  if (rest != 0) words += (rest < 100 ? " and " : " ") + english_below_thousand(rest);
  return words;
}

std::string german_cardinal(int value) {
  require(value, 0, 999'999, "number");
  if (value < 1000) return german_below_thousand(value, "eins");
  std::string word = german_below_thousand(value / 1000, "ein") + "tausend";
  if (value % 1000 != 0) word += german_below_thousand(value % 1000, "eins");
  return word;
}

std::string english_ordinal(int value) {
  require(value, 1, 999, "ordinal");
  std::string words;
  const int rest = value % 100;
  if (value >= 100) {
    words = std::string(english_small[value / 100]) + (rest == 0 ? " hundredth" : " hundred and ");
  }
  if (rest == 0) return words;
  if (rest < 20) return words.append(english_small_ordinal[rest]);
  const std::string_view tens = english_tens[rest / 10];
  if (rest % 10 == 0) return words.append(tens.substr(0, tens.size() - 1)).append("ieth");
  return words.append(tens).append(" ").append(english_small_ordinal[rest % 10]);
}

std::string german_ordinal(int value, std::string_view ending) {
  require(value, 1, 999, "ordinal");
  std::string word;
  if (value >= 100) word = german_below_thousand(value / 100 * 100, "ein");
  const int rest = value % 100;
  if (rest == 0 || rest >= 20) {
    if (rest != 0) word += german_below_hundred(rest, "ein");
    word += "st";
  } else if (rest == 1) {
    word += "erst";
  } else if (rest == 3) {
    word += "dritt";
  } else if (rest == 7) {
    word += "siebt";
  } else if (rest == 8) {
    word += "acht";
  } else {
    word.append(german_small[rest]).append("t");
  }
  return word.append(ending);
}

std::string english_year(int year) {
  require(year, 1100, 2099, "year");
  if (year >= 2000 && year < 2010) return english_cardinal(year);
  const std::string century = english_below_hundred(year / 100);
  const int rest = year % 100;
  if (rest == 0) return century + " hundred";
  if (rest < 10) return century + " oh " + english_below_hundred(rest);
  return century + " " + english_below_hundred(rest);
}

std::string german_year(int year) {
  require(year, 1100, 2099, "year");
  if (year >= 2000) return german_cardinal(year);
  std::string word = german_below_hundred(year / 100, "ein") + "hundert";
  if (year % 100 != 0) word += german_below_hundred(year % 100, "eins");
  return word;
}

std::string english_time(int hour, int minute) {
  require(hour, 1, 23, "hour");
  require(minute, 1, 59, "minute");
  return english_below_hundred(hour) + (minute < 10 ? " oh " : " ") + english_below_hundred(minute);
}

std::string german_time(int hour, int minute) {
  require(hour, 1, 23, "hour");
  require(minute, 1, 59, "minute");
  return german_below_hundred(hour, "ein") + " Uhr " + german_below_hundred(minute, "eins");
}

}  // namespace nmt
