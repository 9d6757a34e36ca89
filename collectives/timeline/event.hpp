#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ddl/data_type.hpp"

namespace ddl::collectives {

/// Numbers with names.
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
  enum class Way : std::uint8_t { done, failed, compared } way = Way::done;  ///< Of the last: before a call.
  // Of rings alone:
  bool has_wide_repeats = false;
  std::uint16_t repeats = 0;
};

/// A call like the one before it, but for when it was made and `sequence`, which is the next.
struct RepeatedCall {
  [[nodiscard]] static bool fits(std::uint64_t ticks) noexcept {
    return ticks <= std::numeric_limits<std::uint32_t>::max();
  }
  std::uint32_t pause;  ///< From the end of the one before to when it was called, and began. `Ticks`.
  std::uint32_t length;
};

struct PhaseFacts {
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;  ///< That this rank's steps are about.
  std::uint32_t plan = 0;
  std::uint16_t communicator = 0;
  std::uint16_t chunk = 0;
  std::uint32_t phase = 0;
};

/// What a rank did from one moment to another. Names are numbers that a `RunRecorder` has given.
struct Event {
  enum class Kind : std::uint8_t {
    span,     ///< Of the trainer, or of whoever has named it.
    instant,  ///< The same, of no length.
    call,     ///< Of a collective, in the engine.
    phase,    ///< Of a collective's plan: one chunk of it.
  };
  /// Which one: by kind.
  union Facts {
    Facts() noexcept : numbers() {}
    Facts(const NamedNumbers& facts) noexcept : numbers(facts) {}
    Facts(const CallFacts& facts) noexcept : call(facts) {}
    Facts(const PhaseFacts& facts) noexcept : phase(facts) {}

    NamedNumbers numbers;  ///< Spans and instants.
    CallFacts call;
    PhaseFacts phase;
  };

  std::uint64_t begin = 0;  ///< `Ticks`; if `by_clock`, nanoseconds of `Clock`.
  std::uint64_t end = 0;
  std::uint32_t name = 0;
  std::uint16_t track = 0;
  Kind kind = Kind::span;
  bool by_clock = false;
  Facts facts{};
};
static_assert(sizeof(Event) == 64 && std::is_trivially_copyable_v<Event>);

}  // namespace ddl::collectives
