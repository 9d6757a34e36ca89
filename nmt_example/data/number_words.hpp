#pragma once

#include <string>
#include <string_view>

namespace nmt {

/// Number words of English (British usage, spaced instead of hyphenated: "two hundred and thirty five
/// thousand four hundred and twelve") and German ("zweihundertvierzehn"). Every function throws `ddl::Error`
/// (`invalid_argument`) for a value outside the given range.

/// 0 to 999,999.
std::string english_cardinal(int value);
/// 0 to 999,999. 1 is "eins".
std::string german_cardinal(int value);

/// 1 to 999: "three hundred and twenty first".
std::string english_ordinal(int value);
/// 1 to 999, with an ending: ("e") "dreihunderteinundzwanzigste", ("en") "dritten".
std::string german_ordinal(int value, std::string_view ending);

/// 1100 to 2099 as years are read: "nineteen eighty four", "nineteen oh five", "two thousand and
/// nine", "twenty twenty four".
std::string english_year(int year);
/// 1100 to 2099: "neunzehnhundertvierundachtzig", "zweitausendneun".
std::string german_year(int year);

/// Hour 1 to 23, minute 1 to 59, as timetables are read aloud: "three forty seven", "three oh seven".
std::string english_time(int hour, int minute);
/// The same in German: "drei Uhr siebenundvierzig".
std::string german_time(int hour, int minute);

}  // namespace nmt
