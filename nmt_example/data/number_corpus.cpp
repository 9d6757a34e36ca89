#include "nmt_example/data/number_corpus.hpp"

#include <array>

#include "ddl/error.hpp"
#include "nmt_example/data/number_words.hpp"

namespace nmt {
namespace {

/// Chosen so that every small domain (days of the month, minutes, ages) has phrases in every split.
constexpr std::uint64_t split_salt = 1001;

struct Words {
  std::string english;
  std::string german;
};

/// A noun's forms after a number. Accusative and nominative agree in all of them but "einen".
struct Noun {
  std::string_view english_one, english_many;
  std::string_view german_one_accusative, german_one_dative;
  std::string_view german_many, german_many_dative;
};

enum class Case { accusative, dative };

constexpr std::array things = {
    Noun{"apple", "apples", "einen Apfel", "einem Apfel", "Äpfel", "Äpfeln"},
    Noun{"pear", "pears", "eine Birne", "einer Birne", "Birnen", "Birnen"},
    Noun{"book", "books", "ein Buch", "einem Buch", "Bücher", "Büchern"},
    Noun{"egg", "eggs", "ein Ei", "einem Ei", "Eier", "Eiern"},
    Noun{"chair", "chairs", "einen Stuhl", "einem Stuhl", "Stühle", "Stühlen"},
    Noun{"lamp", "lamps", "eine Lampe", "einer Lampe", "Lampen", "Lampen"},
    Noun{"picture", "pictures", "ein Bild", "einem Bild", "Bilder", "Bildern"},
    Noun{"bottle", "bottles", "eine Flasche", "einer Flasche", "Flaschen", "Flaschen"},
    Noun{"horse", "horses", "ein Pferd", "einem Pferd", "Pferde", "Pferden"},
    Noun{"ticket", "tickets", "eine Karte", "einer Karte", "Karten", "Karten"},
};
constexpr Noun minute = {"minute", "minutes", "eine Minute", "einer Minute", "Minuten", "Minuten"};
constexpr Noun hour = {"hour", "hours", "eine Stunde", "einer Stunde", "Stunden", "Stunden"};
constexpr Noun day = {"day", "days", "einen Tag", "einem Tag", "Tage", "Tagen"};
constexpr Noun week = {"week", "weeks", "eine Woche", "einer Woche", "Wochen", "Wochen"};
constexpr Noun month = {"month", "months", "einen Monat", "einem Monat", "Monate", "Monaten"};
constexpr Noun year = {"year", "years", "ein Jahr", "einem Jahr", "Jahre", "Jahren"};
constexpr std::array time_units = {minute, hour, day, week, month, year};
constexpr Noun euro = {"euro", "euros", "einen Euro", "einem Euro", "Euro", "Euro"};
constexpr Noun cent = {"cent", "cents", "einen Cent", "einem Cent", "Cent", "Cent"};

struct NamePair {
  std::string_view english, german;
};
constexpr std::array<NamePair, 12> months = {{{"January", "Januar"},
                                              {"February", "Februar"},
                                              {"March", "März"},
                                              {"April", "April"},
                                              {"May", "Mai"},
                                              {"June", "Juni"},
                                              {"July", "Juli"},
                                              {"August", "August"},
                                              {"September", "September"},
                                              {"October", "Oktober"},
                                              {"November", "November"},
                                              {"December", "Dezember"}}};
constexpr std::array<int, 12> month_days = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

/// Draws values whose phrases belong to one split.
class Draw {
 public:
  Draw(CorpusSplit split, ddl::SplitMix64& random) : split_(split), random_(random) {}

  int below(int bound) {
    return static_cast<int>(((random_.next() >> 32) * static_cast<std::uint64_t>(bound)) >> 32);
  }
  int between(int low, int high) { return low + below(high - low + 1); }
  template <typename T, std::size_t n>
  const T& one_of(const std::array<T, n>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(n)))];
  }

  /// Calls `candidate` until the phrase of its value belongs to the split.
  template <typename Candidate, typename Phrase>
  auto until_allowed(Candidate candidate, Phrase phrase) {
    for (int attempt = 0; attempt < 1'000'000; ++attempt) {
      const auto value = candidate();
      if (split_of_number_phrase(phrase(value)) == split_) return value;
    }
    throw ddl::Error(ddl::ErrorCode::internal, "number corpus: a template has no phrase in this split");
  }
  template <typename Candidate>
  int cardinal_from(Candidate candidate) {
    return until_allowed(candidate, english_cardinal);
  }
  int cardinal_between(int low, int high) {
    return cardinal_from([&] { return between(low, high); });
  }
  /// Numbers of every length up to 6 digits, the longer ones a little more often.
  int cardinal() {
    return cardinal_from([&] { return any_length(); });
  }
  /// A number before a plural noun: never 1, 101, ..., whose German form depends on the noun.
  int plural_between(int low, int high) {
    return cardinal_from([&] {
      int value = between(low, high);
      while (value % 100 == 1) value = between(low, high);
      return value;
    });
  }
  int plural_of_any_length(int low) {
    return cardinal_from([&] {
      int value = any_length();
      while (value < low || value % 100 == 1) value = any_length();
      return value;
    });
  }

 private:
  int any_length() {
    constexpr std::array digits = {1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6};
    constexpr std::array powers = {0, 10, 100, 1000, 10'000, 100'000, 1'000'000};
    const auto length = static_cast<std::size_t>(one_of(digits));
    return between(powers[length - 1], powers[length] - 1);
  }

  CorpusSplit split_;
  ddl::SplitMix64& random_;
};

Words cardinal_words(int value) { return {english_cardinal(value), german_cardinal(value)}; }

Words counted(int value, const Noun& noun, Case grammatical_case = Case::accusative) {
  const bool dative = grammatical_case == Case::dative;
  if (value == 1) {
    return {"one " + std::string(noun.english_one),
            std::string(dative ? noun.german_one_dative : noun.german_one_accusative)};
  }
  return {english_cardinal(value).append(" ").append(noun.english_many),
          german_cardinal(value).append(" ").append(dative ? noun.german_many_dative : noun.german_many)};
}

Words operator+(Words left, const Words& right) {
  return {left.english.append(" and ").append(right.english),
          left.german.append(" und ").append(right.german)};
}

Words timetable_time(Draw& draw) {
  struct Time {
    int hour, minute;
  };
  const Time time = draw.until_allowed(
      [&] {
        return Time{draw.between(1, 23), draw.between(1, 59)};
      },
      [](Time t) { return english_time(t.hour, t.minute); });
  return {english_time(time.hour, time.minute), german_time(time.hour, time.minute)};
}

/// Times such as "half past three". Their phrases are single words, so they are for train only.
Words spoken_time(Draw& draw) {
  const int hour_now = draw.between(1, 12);
  const int hour_next = hour_now % 12 + 1;
  const auto spoken = [](std::string_view english, std::string_view german, int clock_hour) {
    return Words{std::string(english).append(" ").append(english_cardinal(clock_hour)),
                 std::string(german).append(" ").append(german_cardinal(clock_hour))};
  };
  switch (draw.below(10)) {
    case 0:
      return spoken("a quarter past", "Viertel nach", hour_now);
    case 1:
      return spoken("a quarter to", "Viertel vor", hour_next);
    case 2:
    case 3:
      return {"half past " + english_cardinal(hour_now), "halb " + german_cardinal(hour_next)};
    case 4:
      return spoken("five past", "fünf nach", hour_now);
    case 5:
      return spoken("ten past", "zehn nach", hour_now);
    case 6:
      return spoken("twenty past", "zwanzig nach", hour_now);
    case 7:
      return spoken("twenty to", "zwanzig vor", hour_next);
    case 8:
      return spoken("ten to", "zehn vor", hour_next);
    default:
      return {english_cardinal(hour_now) + " o'clock",
              (hour_now == 1 ? std::string("ein") : german_cardinal(hour_now)) + " Uhr"};
  }
}

Words date(Draw& draw) {
  struct Date {
    int day;
    std::size_t month;
  };
  const Date value = draw.until_allowed(
      [&] {
        const auto month_index = static_cast<std::size_t>(draw.below(12));
        return Date{draw.between(1, month_days[month_index]), month_index};
      },
      [](Date d) { return english_ordinal(d.day); });
  return {english_ordinal(value.day).append(" of ").append(months[value.month].english),
          german_ordinal(value.day, "en").append(" ").append(months[value.month].german)};
}

Words year_words(Draw& draw) {
  const int value = draw.until_allowed(
      [&] { return draw.below(4) == 0 ? draw.between(1100, 1799) : draw.between(1800, 2024); }, english_year);
  return {english_year(value), german_year(value)};
}

struct Slots {
  Words a, b;
};

// These functions fill the slots {a} and {b} of a template's frames.

Slots fill_cardinal(Draw& draw) { return {cardinal_words(draw.cardinal()), {}}; }

/// Two different numbers, the larger first.
Slots fill_descending(Draw& draw) {
  int a = draw.cardinal();
  int b = draw.cardinal();
  while (a == b) b = draw.cardinal();
  if (a < b) std::swap(a, b);
  return {cardinal_words(a), cardinal_words(b)};
}

Slots fill_ascending(Draw& draw) {
  Slots slots = fill_descending(draw);
  std::swap(slots.a, slots.b);
  return slots;
}

Slots fill_inhabitants(Draw& draw) { return {cardinal_words(draw.plural_of_any_length(100)), {}}; }

Slots fill_things(Draw& draw) {
  const int value = draw.cardinal_from([&] {
    int count = draw.below(3) == 0 ? draw.between(1, 20) : draw.between(1, 999);
    return count > 1 && count % 100 == 1 ? count + 1 : count;
  });
  return {counted(value, draw.one_of(things)), {}};
}

Slots fill_price(Draw& draw) {
  const int euros = draw.cardinal_from([&] {
    const int value = draw.below(3) == 0 ? draw.between(1, 30) : draw.between(1, 999);
    return value > 1 && value % 100 == 1 ? value + 1 : value;
  });
  if (draw.below(3) == 0) return {counted(euros, euro), {}};
  return {counted(euros, euro) + counted(draw.cardinal_between(1, 99), cent), {}};
}

Slots fill_payment(Draw& draw) { return {cardinal_words(draw.plural_of_any_length(1000)), {}}; }

Slots fill_duration(Draw& draw) {
  const int hours =
      draw.cardinal_from([&] { return draw.below(2) == 0 ? draw.between(1, 24) : draw.between(1, 99); });
  return {counted(hours, hour) + counted(draw.cardinal_between(1, 59), minute), {}};
}

Slots fill_time_span(Draw& draw) {
  const int value =
      draw.cardinal_from([&] { return draw.below(3) == 0 ? draw.between(1, 20) : draw.between(1, 99); });
  return {counted(value, draw.one_of(time_units), Case::dative), {}};
}

Slots fill_time(Draw& draw) { return {timetable_time(draw), {}}; }
Slots fill_two_times(Draw& draw) {
  Words from = timetable_time(draw);
  return {std::move(from), timetable_time(draw)};
}
Slots fill_spoken_time(Draw& draw) { return {spoken_time(draw), {}}; }

Slots fill_date(Draw& draw) { return {date(draw), {}}; }
Slots fill_full_date(Draw& draw) {
  Words day_and_month = date(draw);
  return {std::move(day_and_month), year_words(draw)};
}
Slots fill_year(Draw& draw) { return {year_words(draw), {}}; }

Slots fill_ordinal(Draw& draw) {
  const int value = draw.until_allowed(
      [&] { return draw.below(3) == 0 ? draw.between(1, 99) : draw.between(1, 999); }, english_ordinal);
  return {{english_ordinal(value), german_ordinal(value, "e")}, {}};
}

Slots fill_place(Draw& draw) {
  return {cardinal_words(draw.cardinal_from(
              [&] { return draw.below(3) == 0 ? draw.between(1, 99) : draw.between(1, 999); })),
          {}};
}

Slots fill_age(Draw& draw) { return {cardinal_words(draw.cardinal_between(2, 99)), {}}; }
Slots fill_percent(Draw& draw) { return {cardinal_words(draw.cardinal_between(2, 100)), {}}; }
Slots fill_degrees(Draw& draw) { return {cardinal_words(draw.cardinal_between(2, 59)), {}}; }
Slots fill_kilometres(Draw& draw) { return {cardinal_words(draw.plural_between(2, 9999)), {}}; }
Slots fill_kilograms(Draw& draw) { return {cardinal_words(draw.plural_between(2, 999)), {}}; }

Slots fill_code(Draw& draw) {
  const Words code = draw.until_allowed(
      [&] {
        Words digits;
        const int length = draw.between(3, 5);
        for (int i = 0; i < length; ++i) {
          const Words digit = cardinal_words(draw.below(10));
          digits.english.append(i == 0 ? "" : " ").append(digit.english);
          digits.german.append(i == 0 ? "" : " ").append(digit.german);
        }
        return digits;
      },
      [](const Words& words) { return words.english; });
  return {code, {}};
}

Slots fill_score(Draw& draw) {
  int a = draw.cardinal_between(2, 99);
  int b = draw.cardinal_between(2, 99);
  if (a < b) std::swap(a, b);
  return {cardinal_words(a), cardinal_words(b)};
}

struct Frame {
  std::string_view english, german;
};

constexpr Frame cardinal_frames[] = {
    {"The answer is {a}.", "Die Antwort ist {a}."},
    {"Please write down the number {a}.", "Bitte schreib die Zahl {a} auf."},
    {"He counted to {a}.", "Er zählte bis {a}."},
    {"The computer shows the number {a}.", "Der Computer zeigt die Zahl {a}."},
    {"My favourite number is {a}.", "Meine Lieblingszahl ist {a}."},
    {"She is thinking of the number {a}.", "Sie denkt an die Zahl {a}."},
};
constexpr Frame comparison_frames[] = {
    {"We know that {a} is more than {b}.", "Wir wissen, dass {a} mehr ist als {b}."},
    {"He says that {a} is greater than {b}.", "Er sagt, dass {a} größer ist als {b}."},
};
constexpr Frame range_frames[] = {
    {"Guess a number from {a} to {b}.", "Rate eine Zahl von {a} bis {b}."},
    {"The tickets are numbered from {a} to {b}.", "Die Karten sind von {a} bis {b} nummeriert."},
};
constexpr Frame difference_frames[] = {
    {"What is {a} minus {b}?", "Was ist {a} minus {b}?"},
    {"She calculates {a} minus {b}.", "Sie rechnet {a} minus {b}."},
};
constexpr Frame inhabitants_frames[] = {
    {"The town has {a} inhabitants.", "Die Stadt hat {a} Einwohner."},
    {"The island has {a} inhabitants.", "Die Insel hat {a} Einwohner."},
    {"The library owns {a} books.", "Die Bibliothek besitzt {a} Bücher."},
    {"The team has {a} fans.", "Die Mannschaft hat {a} Anhänger."},
};
constexpr Frame things_frames[] = {
    {"The cook bought {a}.", "Der Koch kaufte {a}."},
    {"My brother found {a}.", "Mein Bruder fand {a}."},
    {"The farmer sold {a}.", "Der Bauer verkaufte {a}."},
    {"We need {a}.", "Wir brauchen {a}."},
    {"She painted {a}.", "Sie malte {a}."},
};
constexpr Frame price_frames[] = {
    {"The jacket costs {a}.", "Die Jacke kostet {a}."},
    {"The bicycle costs {a}.", "Das Fahrrad kostet {a}."},
    {"A ticket to Berlin costs {a}.", "Eine Fahrkarte nach Berlin kostet {a}."},
    {"You still owe me {a}.", "Du schuldest mir noch {a}."},
};
constexpr Frame payment_frames[] = {
    {"He paid {a} euros for the house.", "Er bezahlte {a} Euro für das Haus."},
    {"The museum spent {a} euros on the painting.", "Das Museum gab {a} Euro für das Gemälde aus."},
    {"The bank lent us {a} dollars.", "Die Bank lieh uns {a} Dollar."},
};
constexpr Frame duration_frames[] = {
    {"The journey takes {a}.", "Die Reise dauert {a}."},
    {"The repair took {a}.", "Die Reparatur dauerte {a}."},
    {"They waited for {a}.", "Sie warteten {a}."},
};
constexpr Frame time_span_frames[] = {
    {"The shop opens in {a}.", "Das Geschäft öffnet in {a}."},
    {"She came home {a} ago.", "Sie kam vor {a} nach Hause."},
    {"The work will be done in {a}.", "Die Arbeit ist in {a} fertig."},
    {"We moved here {a} ago.", "Wir sind vor {a} hierher gezogen."},
};
constexpr Frame time_frames[] = {
    {"The train leaves at {a}.", "Der Zug fährt um {a} ab."},
    {"The meeting starts at {a}.", "Die Besprechung beginnt um {a}."},
    {"We arrived at {a}.", "Wir kamen um {a} an."},
};
constexpr Frame opening_hours_frames[] = {
    {"The shop is open from {a} to {b}.", "Das Geschäft ist von {a} bis {b} geöffnet."},
    {"The bus leaves at {a} and arrives at {b}.", "Der Bus fährt um {a} ab und kommt um {b} an."},
};
constexpr Frame spoken_time_frames[] = {
    {"The train leaves at {a}.", "Der Zug fährt um {a} ab."},
    {"The meeting starts at {a}.", "Die Besprechung beginnt um {a}."},
    {"Please call me at {a}.", "Bitte ruf mich um {a} an."},
};
constexpr Frame date_frames[] = {
    {"The exhibition opens on the {a}.", "Die Ausstellung öffnet am {a}."},
    {"Her birthday is on the {a}.", "Ihr Geburtstag ist am {a}."},
    {"The course ends on the {a}.", "Der Kurs endet am {a}."},
};
constexpr Frame full_date_frames[] = {
    {"She was born on the {a} {b}.", "Sie wurde am {a} {b} geboren."},
    {"The contract was signed on the {a} {b}.", "Der Vertrag wurde am {a} {b} unterschrieben."},
    {"The letter is dated the {a} {b}.", "Der Brief ist vom {a} {b}."},
};
constexpr Frame year_frames[] = {
    {"The bridge was built in {a}.", "Die Brücke wurde {a} gebaut."},
    {"The school was founded in {a}.", "Die Schule wurde {a} gegründet."},
    {"The painter died in {a}.", "Der Maler starb {a}."},
};
constexpr Frame ordinal_frames[] = {
    {"He is the {a} visitor.", "Er ist der {a} Besucher."},
    {"This is the {a} letter.", "Das ist der {a} Brief."},
    {"That was the {a} attempt.", "Das war der {a} Versuch."},
};
constexpr Frame place_frames[] = {
    {"The answer is on page {a}.", "Die Antwort steht auf Seite {a}."},
    {"The guest is staying in room {a}.", "Der Gast wohnt in Zimmer {a}."},
    {"Take bus number {a}.", "Nimm den Bus Nummer {a}."},
};
constexpr Frame age_frames[] = {
    {"My grandmother is {a} years old.", "Meine Großmutter ist {a} Jahre alt."},
    {"The tree is {a} years old.", "Der Baum ist {a} Jahre alt."},
    {"Our teacher is {a} years old.", "Unser Lehrer ist {a} Jahre alt."},
};
constexpr Frame percent_frames[] = {
    {"About {a} percent of the pupils like music.", "Etwa {a} Prozent der Schüler mögen Musik."},
    {"The price rose by {a} percent.", "Der Preis stieg um {a} Prozent."},
};
constexpr Frame temperature_frames[] = {
    {"Today it is {a} degrees in the shade.", "Heute sind es {a} Grad im Schatten."},
    {"At night it was minus {a} degrees.", "In der Nacht waren es minus {a} Grad."},
};
constexpr Frame distance_frames[] = {
    {"It is {a} kilometres to Hamburg.", "Es sind {a} Kilometer bis Hamburg."},
    {"The road is {a} metres long.", "Die Straße ist {a} Meter lang."},
};
constexpr Frame weight_frames[] = {
    {"The box weighs {a} kilograms.", "Die Kiste wiegt {a} Kilogramm."},
    {"The bakery uses {a} kilograms of flour.", "Die Bäckerei verbraucht {a} Kilogramm Mehl."},
};
constexpr Frame code_frames[] = {
    {"The code is {a}.", "Der Code lautet {a}."},
    {"Please dial {a}.", "Bitte wählen Sie {a}."},
};
constexpr Frame score_frames[] = {
    {"Our team won {a} to {b}.", "Unsere Mannschaft gewann {a} zu {b}."},
    {"The visitors lost {b} to {a}.", "Die Gäste verloren {b} zu {a}."},
};

struct Template {
  std::string_view name;
  int weight;
  bool train_only;
  std::span<const Frame> frames;
  Slots (*fill)(Draw&);
};

constexpr Template templates[] = {
    {"cardinal", 18, false, cardinal_frames, fill_cardinal},
    {"comparison", 4, false, comparison_frames, fill_descending},
    {"range", 4, false, range_frames, fill_ascending},
    {"difference", 4, false, difference_frames, fill_descending},
    {"inhabitants", 7, false, inhabitants_frames, fill_inhabitants},
    {"things", 6, false, things_frames, fill_things},
    {"price", 6, false, price_frames, fill_price},
    {"payment", 4, false, payment_frames, fill_payment},
    {"duration", 5, false, duration_frames, fill_duration},
    {"time span", 4, false, time_span_frames, fill_time_span},
    {"time", 5, false, time_frames, fill_time},
    {"opening hours", 3, false, opening_hours_frames, fill_two_times},
    {"spoken time", 3, true, spoken_time_frames, fill_spoken_time},
    {"date", 3, false, date_frames, fill_date},
    {"full date", 4, false, full_date_frames, fill_full_date},
    {"year", 3, false, year_frames, fill_year},
    {"ordinal", 4, false, ordinal_frames, fill_ordinal},
    {"place", 3, false, place_frames, fill_place},
    {"age", 2, false, age_frames, fill_age},
    {"percent", 1, false, percent_frames, fill_percent},
    {"temperature", 1, false, temperature_frames, fill_degrees},
    {"distance", 2, false, distance_frames, fill_kilometres},
    {"weight", 2, false, weight_frames, fill_kilograms},
    {"code", 2, false, code_frames, fill_code},
    {"score", 1, false, score_frames, fill_score},
};

std::size_t draw_template(Draw& draw, CorpusSplit split) {
  const auto weight_of = [&](const Template& t) {
    return t.train_only && split != CorpusSplit::train ? 0 : t.weight;
  };
  int total = 0;
  for (const Template& t : templates) total += weight_of(t);
  int position = draw.below(total);
  std::size_t index = 0;
  while (position >= weight_of(templates[index])) position -= weight_of(templates[index++]);
  return index;
}

std::string fill_in(std::string_view frame, const std::string& a, const std::string& b) {
  std::string text;
  while (!frame.empty()) {
    const std::size_t slot = frame.find('{');
    text += frame.substr(0, slot);
    if (slot == std::string_view::npos) break;
    text += frame[slot + 1] == 'a' ? a : b;
    frame.remove_prefix(slot + 3);
  }
  return text;
}

}  // namespace

CorpusSplit split_of_number_phrase(std::string_view english_words) {
  if (english_words.find(' ') == std::string_view::npos) return CorpusSplit::train;
  ddl::Fnv hash(split_salt);
  for (const char c : english_words) hash.add(static_cast<unsigned char>(c));
  const std::uint64_t bin = ddl::mix(hash.value()) % 20;
  if (bin == 0) return CorpusSplit::dev;
  return bin == 1 ? CorpusSplit::test : CorpusSplit::train;
}

std::vector<NumberTemplate> number_templates() {
  std::vector<NumberTemplate> result;
  for (const Template& t : templates) result.push_back({t.name, t.frames.size(), t.train_only});
  return result;
}

NumberCorpusGenerator::NumberCorpusGenerator(CorpusSplit split, std::uint64_t seed)
    : split_(split), random_(ddl::mix(ddl::mix(seed) + static_cast<std::uint64_t>(split))) {}

NumberSentence NumberCorpusGenerator::next() {
  Draw draw(split_, random_);
  const std::size_t index = draw_template(draw, split_);
  const Template& chosen = templates[index];
  const Frame& frame =
      chosen.frames[static_cast<std::size_t>(draw.below(static_cast<int>(chosen.frames.size())))];
  const Slots slots = chosen.fill(draw);
  return {fill_in(frame.english, slots.a.english, slots.b.english),
          fill_in(frame.german, slots.a.german, slots.b.german), index};
}

ParallelText number_corpus(CorpusSplit split, std::size_t sentences, std::uint64_t seed) {
  NumberCorpusGenerator generator(split, seed);
  ParallelText text;
  text.source.reserve(sentences);
  text.target.reserve(sentences);
  for (std::size_t i = 0; i < sentences; ++i) {
    NumberSentence sentence = generator.next();
    text.source.push_back(std::move(sentence.source));
    text.target.push_back(std::move(sentence.target));
  }
  return text;
}

}  // namespace nmt
