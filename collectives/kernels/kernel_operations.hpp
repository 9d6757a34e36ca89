#pragma once

// The operations. See the comment in kernel_vectors.hpp.

#include "collectives/kernels/kernel_vectors.hpp"

namespace ddl::collectives {
namespace {

/// The vector to compute in: integers wrap around.
template <typename T>
using Unsigned =
    Vector<std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t,
                              std::conditional_t<std::is_same_v<T, std::int64_t>, std::uint64_t, T>>>;

struct Nothing {
  explicit Nothing(int) {}
  template <typename V>
  [[gnu::always_inline]] void operator()(V&) const {}
};

struct Sum {
  template <typename T>
  using Last = Nothing;
  template <typename T>
  [[gnu::always_inline]] static Vector<T> apply(Vector<T> x, Vector<T> y) {
    return reinterpret_cast<Vector<T>>(reinterpret_cast<Unsigned<T>>(x) + reinterpret_cast<Unsigned<T>>(y));
  }
};

struct Product {
  template <typename T>
  using Last = Nothing;
  template <typename T>
  [[gnu::always_inline]] static Vector<T> apply(Vector<T> x, Vector<T> y) {
    return reinterpret_cast<Vector<T>>(reinterpret_cast<Unsigned<T>>(x) * reinterpret_cast<Unsigned<T>>(y));
  }
};

// The comparison x != x selects x if it is NaN; a NaN y is selected because the other comparison fails.
template <bool greatest>
struct Extremum {
  template <typename T>
  using Last = Nothing;
  template <typename T>
  [[gnu::always_inline]] static Vector<T> apply(Vector<T> x, Vector<T> y) {
    if constexpr (static_cast<T>(0.5F) != 0) return ((greatest ? x > y : x < y) | (x != x)) ? x : y;
    if constexpr (greatest) return x > y ? x : y;
    return x < y ? x : y;
  }
};
using Minimum = Extremum<false>;
using Maximum = Extremum<true>;

/// Divides by an integer of at least 2. This template is for floats.
template <typename T>
class Division {
 public:
  explicit Division(int divisor) : divisor_(Vector<T>{} + static_cast<T>(divisor)) {}
  [[gnu::always_inline]] void operator()(Vector<T>& x) const { x /= divisor_; }
  [[gnu::always_inline]] void operator()(FloatPair& x) const {
    x.a /= divisor_;
    x.b /= divisor_;
  }

 private:
  Vector<T> divisor_;
};

template <typename T, typename Change>
[[gnu::always_inline]] inline void change_each(Vector<T>& x, const Change& change) {
  T numbers[width / sizeof(T)];
  __builtin_memcpy(numbers, &x, width);
  for (T& number : numbers) number = change(number);
  __builtin_memcpy(&x, numbers, width);
}

/// x * ceil(2^16 / d) / 2^16. Its error, at most x * (d - 1) / (d * 2^16), is below 1 / d.
template <>
class Division<std::uint8_t> {
 public:
  explicit Division(int divisor) : factor_(divisor > 0xff ? 0 : (0xffff + divisor) / divisor) {}
  [[gnu::always_inline]] void operator()(Vector<std::uint8_t>& x) const {
    change_each<std::uint8_t>(x, [factor = factor_](std::uint8_t number) {
      return static_cast<std::uint8_t>(static_cast<std::uint32_t>(number * factor) >> 16);
    });
  }

 private:
  int factor_;
};

/// In f64: a quotient is at least 1 / d below the next integer, which is more than its rounding error.
template <>
class Division<std::int32_t> {
 public:
  explicit Division(int divisor) : divisor_(divisor) {}
  [[gnu::always_inline]] void operator()(Vector<std::int32_t>& x) const {
    change_each<std::int32_t>(
        x, [divisor = divisor_](std::int32_t number) { return static_cast<std::int32_t>(number / divisor); });
  }

 private:
  double divisor_;
};

/// |x| * (floor(2^(63 + l) / d) + 1) / 2^(63 + l), where 2^l is the least power of two that is at least d.
/// Granlund and Montgomery, "Division by invariant integers using multiplication", 1994, theorem 4.2.
template <>
class Division<std::int64_t> {
 public:
  explicit Division(int divisor) {
    while ((std::int64_t{1} << (shift_ + 1)) < divisor) ++shift_;
    factor_ = static_cast<std::uint64_t>((Wide{1} << (64 + shift_)) / static_cast<unsigned>(divisor)) + 1;
  }
  [[gnu::always_inline]] void operator()(Vector<std::int64_t>& x) const {
    change_each<std::int64_t>(x, [this](std::int64_t number) {
      const std::uint64_t sign = 0 - (static_cast<std::uint64_t>(number) >> 63);
      const Wide product = static_cast<Wide>((static_cast<std::uint64_t>(number) ^ sign) - sign) * factor_;
      const std::uint64_t magnitude = static_cast<std::uint64_t>(product >> 64) >> shift_;
      return static_cast<std::int64_t>((magnitude ^ sign) - sign);
    });
  }

 private:
  __extension__ using Wide = unsigned __int128;
  int shift_ = 0;  // l - 1
  std::uint64_t factor_;
};

struct Average : Sum {
  template <typename T>
  using Last = Division<T>;
};

template <typename Op, typename T>
[[gnu::always_inline]] inline Vector<T> combine(Vector<T> x, Vector<T> y) {
  return Op::template apply<T>(x, y);
}
template <typename Op, typename T>
[[gnu::always_inline]] inline FloatPair combine(const FloatPair& x, const FloatPair& y) {
  return {Op::template apply<float>(x.a, y.a), Op::template apply<float>(x.b, y.b)};
}

}  // namespace
}  // namespace ddl::collectives
