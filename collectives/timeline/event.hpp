#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// What a rank did from one moment to another. Names are numbers that a `RunRecorder` has given.
struct Event {
  enum class Kind : std::uint8_t {
    span,     ///< Of the trainer, or of whoever has named it.
    instant,  ///< The same, of no length.
    call,     ///< Of a collective, in the engine.
    phase,    ///< Of a collective's plan: one chunk of it.
  };
  static constexpr std::size_t fact_bytes = 40;
  using Facts = std::array<std::byte, fact_bytes>;

  std::uint64_t begin = 0;  ///< `Ticks`; if `by_clock`, nanoseconds of `Clock`.
  std::uint64_t end = 0;
  std::uint32_t name = 0;
  std::uint16_t track = 0;
  Kind kind = Kind::span;
  bool by_clock = false;
  Facts facts{};  ///< By kind.
};
static_assert(sizeof(Event) == 64);

/// Of spans and instants: numbers with names.
struct NamedNumbers {
  static constexpr std::size_t most = 3;
  std::array<std::uint32_t, most> names{};
  std::uint32_t count = 0;
  std::array<std::int64_t, most> values{};
};

struct CallFacts {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint64_t called = 0;  ///< `Ticks`; when the trainer made the call.
  std::uint32_t plan = 0;    ///< As `RunRecorder` numbers them.
  std::uint16_t communicator = 0;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::int32_t root = -1;
  enum class Way : std::uint32_t { done, failed, compared } way = Way::done;  ///< Of the last: before a call.
};

struct PhaseFacts {
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;  ///< That this rank's steps are about.
  std::uint32_t plan = 0;
  std::uint16_t communicator = 0;
  std::uint16_t chunk = 0;
  std::uint32_t phase = 0;
  std::uint32_t unused = 0;
  std::uint64_t also_unused = 0;
};

static_assert(sizeof(NamedNumbers) == Event::fact_bytes && sizeof(CallFacts) == Event::fact_bytes &&
              sizeof(PhaseFacts) == Event::fact_bytes);

template <typename T>
Event::Facts facts_of(const T& facts) noexcept {
  return std::bit_cast<Event::Facts>(facts);
}
template <typename T>
T facts_as(const Event& event) noexcept {
  return std::bit_cast<T>(event.facts);
}

}  // namespace ddl::collectives
