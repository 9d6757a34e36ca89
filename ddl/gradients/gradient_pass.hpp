#pragma once

// Passes over the gradients of a bucket on a device: the work of each thread of a kernel. Also compiled for
// the host, for tests.

#include <cmath>
#include <cstdint>

#include "collectives/kernels/element.hpp"
#include "collectives/kernels/host_device.hpp"
#include "ddl/data_type.hpp"
#include "ddl/device_outcome.hpp"

namespace ddl {

// Sums of squares of floats that have the same bits whatever the order and the ranks of the additions, on
// devices and hosts.

/// A sum of squares of floats as a multiple of 2^-298, in digits of 32 bits with 64 bits each, so that 2^32
/// squares can be added before a `carry`.
struct ExactSquares {
  static constexpr int lowest_exponent = -298;
  static constexpr int digit_bits = 32;
  static constexpr int digits = 22;  ///< 4 from the lowest digit of a square on, which is one of 18.
  static constexpr int numbers = digits + 1;

  std::uint64_t digit[digits];
  std::uint64_t not_finite;  ///< Number of values that were not finite.
};
static_assert(sizeof(ExactSquares) == ExactSquares::numbers * sizeof(std::uint64_t));

/// A square: root * 2^shift in units of digit `bin`, with a root below 2^48 and a shift below 32.
struct SquareInBin {
  std::uint64_t root;
  int bin;
  int shift;
};

DDL_HOST_DEVICE bool is_finite(float value) {
  return (__builtin_bit_cast(std::uint32_t, value) & 0x7fff'ffffU) < 0x7f80'0000U;
}

/// The square of a finite value.
DDL_HOST_DEVICE SquareInBin square_in_bin(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value) & 0x7fff'ffffU;
  const int biased = static_cast<int>(bits >> 23);
  const std::uint64_t mantissa = (bits & 0x7f'ffffU) | (biased > 0 ? 0x80'0000U : 0U);
  const int exponent = 2 * ((biased > 0 ? biased : 1) - 150) - ExactSquares::lowest_exponent;
  return {mantissa * mantissa, exponent / ExactSquares::digit_bits, exponent % ExactSquares::digit_bits};
}

/// Collects a thread's squares as long as they are in the same bin, which saves most calls of `add(digit,
/// number)`. Digit `ExactSquares::digits` stands for the count of values that are not finite.
class SquareCollector {
 public:
  template <typename Add>
  DDL_HOST_DEVICE void collect(float value, const Add& add) {
    if (!is_finite(value)) return add(ExactSquares::digits, 1);
    const SquareInBin square = square_in_bin(value);
    if (square.bin != bin_) flush(add);
    bin_ = square.bin;
    const std::uint64_t low = square.root << square.shift;
    low_ += low;
    high_ += (square.shift > 0 ? square.root >> (64 - square.shift) : 0) + (low_ < low ? 1 : 0);
  }
  template <typename Add>
  DDL_HOST_DEVICE void flush(const Add& add) {
    if ((low_ | high_) != 0) {
      add(bin_, low_ & 0xffff'ffffU);
      add(bin_ + 1, low_ >> 32);
      add(bin_ + 2, high_ & 0xffff'ffffU);
      add(bin_ + 3, high_ >> 32);
    }
    low_ = high_ = 0;
  }

 private:
  int bin_ = 0;
  std::uint64_t low_ = 0, high_ = 0;
};

/// Adds a number to a digit without atomics, for SquareCollector on a single thread.
struct AddInTurn {
  ExactSquares& squares;
  void operator()(int digit, std::uint64_t number) const {
    (digit == ExactSquares::digits ? squares.not_finite : squares.digit[digit]) += number;
  }
};

/// Normalizes the digits to 32 bits, so that equal sums have equal digits.
DDL_HOST_DEVICE void carry(ExactSquares& squares) {
  std::uint64_t over = 0;
  for (std::uint64_t& digit : squares.digit) {
    const std::uint64_t sum = digit + over;
    digit = sum & 0xffff'ffffU;
    over = sum >> 32;
  }
}

/// The value of a sum after `carry`; NaN if a value was not finite.
DDL_HOST_DEVICE double value_of(const ExactSquares& squares) {
  if (squares.not_finite != 0) return __builtin_bit_cast(double, std::uint64_t{0x7ff8'0000'0000'0000});
  double sum = 0;
  for (int i = ExactSquares::digits - 1; i >= 0; --i) {
    const int exponent = i * ExactSquares::digit_bits + ExactSquares::lowest_exponent;
    sum += static_cast<double>(squares.digit[i]) *
           __builtin_bit_cast(double, static_cast<std::uint64_t>(1023 + exponent) << 52U);
  }
  return sum;
}

}  // namespace ddl

namespace ddl::gradient_pass {

/// Part of a gradient in a bucket.
struct Piece {
  void* gradient;            ///< The first element of the piece.
  const float* accumulated;  ///< The weighted means that earlier micro-batches accumulated for it.
  std::uint64_t begin, end;  ///< Its elements in the bucket.
  DataType type;             ///< The gradient's type: f32, f16 or bf16.
};

/// Calls f with a value of the C++ type. Loads whose type is known only when they are made wait for each
/// other.
template <typename F>
DDL_HOST_DEVICE void with_type(DataType type, const F& f) {
  if (type == DataType::f16) return f(float16());
  if (type == DataType::bf16) return f(bfloat16());
  f(float());
}

template <typename T>
DDL_HOST_DEVICE float read(const void* values, std::uint64_t at) {
  return collectives::device::widen(static_cast<const T*>(values)[at]);
}

/// Writes `value`, rounded to T; returns the rounded value.
template <typename T>
DDL_HOST_DEVICE float write(void* values, std::uint64_t at, float value) {
  using collectives::device::narrow;
  return collectives::device::widen(static_cast<T*>(values)[at] = narrow<T>(value));
}

/// A bucket of gradients in device memory.
struct Bucket {
  const Piece* pieces;  ///< Consecutive parts of the bucket; the array is in device memory.
  std::uint32_t piece_count;
  void* values;   ///< The bucket's elements; in place, the gradients' own memory.
  DataType type;  ///< The elements' type: f32, or that of 16-bit gradients that are summed in it.
  std::uint64_t count;
  bool scattered;  ///< Whether this rank has only the sums of its own range.
};

/// The indices of a kernel's thread.
struct Lane {
  std::uint32_t block, blocks;
  std::uint32_t thread, threads;
};

/// Elements per thread that a block loads before it stores any, to hide the latency of memory.
constexpr std::uint32_t chunk_of_thread = 16;

/// The index of the piece that holds `element`.
DDL_HOST_DEVICE std::uint32_t piece_at(const Bucket& bucket, std::uint64_t element) {
  std::uint32_t first = 0;
  std::uint32_t beyond = bucket.piece_count;
  while (beyond - first > 1) {
    const std::uint32_t middle = first + (beyond - first) / 2;
    if (bucket.pieces[middle].begin <= element) {
      first = middle;
    } else {
      beyond = middle;
    }
  }
  return first;
}

/// Elements [first, beyond) of a bucket.
struct Range {
  std::uint64_t first, beyond;
};

/// Calls `f(piece, part, gradient, value)` for the parts of the pieces that this thread's block has, with
/// values of the C++ types of the piece's gradient and of the bucket.
template <typename F>
DDL_HOST_DEVICE void each_part(const Bucket& bucket, const Range& range, const Lane& lane, const F& f) {
  const std::uint64_t chunk = std::uint64_t{lane.threads} * chunk_of_thread;
  for (std::uint64_t at = range.first + lane.block * chunk; at < range.beyond; at += lane.blocks * chunk) {
    const std::uint64_t end = at + chunk < range.beyond ? at + chunk : range.beyond;
    std::uint64_t begin = at;
    for (std::uint32_t k = piece_at(bucket, at); begin < end; ++k) {
      const Piece piece = bucket.pieces[k];
      const Range part{begin, piece.end < end ? piece.end : end};
      with_type(piece.type, [&](auto gradient) {
        if (bucket.type == DataType::f32) return f(piece, part, gradient, float());
        f(piece, part, gradient, gradient);
      });
      begin = part.beyond;
    }
  }
}

/// Calls `load(element)` for this thread's elements of a part, which has no more than a chunk, and then
/// `store(element, value)`.
template <typename Load, typename Store>
DDL_HOST_DEVICE void each_element(const Range& part, const Lane& lane, const Load& load, const Store& store) {
  float values[chunk_of_thread] = {};
  DDL_UNROLL
  for (std::uint32_t u = 0; u < chunk_of_thread; ++u) {
    const std::uint64_t element = part.first + lane.thread + u * lane.threads;
    if (element < part.beyond) values[u] = load(element);
  }
  DDL_UNROLL
  for (std::uint32_t u = 0; u < chunk_of_thread; ++u) {
    const std::uint64_t element = part.first + lane.thread + u * lane.threads;
    if (element < part.beyond) store(element, values[u]);
  }
}

DDL_HOST_DEVICE float scaled(float value, double factor) { return static_cast<float>(value * factor); }

/// Sets the bucket's values to the gradients times `weight`, plus the accumulated means if `adds`.
DDL_HOST_DEVICE void pack(const Bucket& bucket, double weight, bool adds, const Lane& lane) {
  each_part(bucket, {0, bucket.count}, lane,
            [&]<typename Gradient, typename Value>(const Piece& piece, const Range& part, Gradient, Value) {
              each_element(
                  part, lane,
                  [&](std::uint64_t element) {
                    const std::uint64_t at = element - piece.begin;
                    const double own = read<Gradient>(piece.gradient, at) * weight;
                    return static_cast<float>(adds ? own + piece.accumulated[at] : own);
                  },
                  [&](std::uint64_t element, float value) { write<Value>(bucket.values, element, value); });
            });
}

/// Sets the gradients to the bucket's values times `factor`. Calls `see` with each of this thread's values in
/// `own`, before they are multiplied.
template <typename See>
DDL_HOST_DEVICE void unpack_and_see(const Bucket& bucket, double factor, const Range& own, const Lane& lane,
                                    const See& see) {
  const bool writes = factor != 1 || bucket.piece_count == 0 || bucket.pieces[0].gradient != bucket.values;
  const Range range = writes && !bucket.scattered ? Range{0, bucket.count} : own;
  each_part(bucket, range, lane,
            [&]<typename Gradient, typename Value>(const Piece& piece, const Range& part, Gradient, Value) {
              each_element(
                  part, lane, [&](std::uint64_t element) { return read<Value>(bucket.values, element); },
                  [&](std::uint64_t element, float value) {
                    const bool is_own = element >= own.first && element < own.beyond;
                    float seen = value;
                    if (writes) {
                      const float written =
                          write<Gradient>(piece.gradient, element - piece.begin, scaled(value, factor));
                      if (!is_finite(written)) seen = written;  // a finite sum may overflow 16 bits
                    }
                    if (is_own) see(seen);
                  });
            });
}

/// The same; returns the sum of the squares of this thread's values in `own`.
DDL_HOST_DEVICE double unpack(const Bucket& bucket, double factor, const Range& own, const Lane& lane) {
  double squares = 0;
  unpack_and_see(bucket, factor, own, lane,
                 [&](float value) { squares += static_cast<double>(value) * value; });
  return squares;
}

/// The same; passes the squares of this thread's values in `own` to `add`: see SquareCollector.
template <typename Add>
DDL_HOST_DEVICE void unpack_exactly(const Bucket& bucket, double factor, const Range& own, const Lane& lane,
                                    const Add& add) {
  SquareCollector squares;
  unpack_and_see(bucket, factor, own, lane, [&](float value) { squares.collect(value, add); });
  squares.flush(add);
}

/// target += source * weight
DDL_HOST_DEVICE void add_scaled(float* target, const void* source, DataType type, std::uint64_t count,
                                double weight, const Lane& lane) {
  const std::uint64_t stride = std::uint64_t{lane.blocks} * lane.threads;
  with_type(type, [&]<typename T>(T) {
    for (std::uint64_t i = std::uint64_t{lane.block} * lane.threads + lane.thread; i < count; i += stride)
      target[i] = static_cast<float>(target[i] + read<T>(source, i) * weight);
  });
}

/// A rank's weight of a step, of which `given` is a part that the host has not checked; NaN if that is no
/// number of items.
DDL_HOST_DEVICE double weight_of(double before, double given) {
  const bool is_good = given >= 0 && given - given == 0;
  return is_good ? before + given : __builtin_bit_cast(double, std::uint64_t{0x7ff8'0000'0000'0000});
}

/// The outcome of a step: `weight` and `squares` are sums over all ranks.
DDL_HOST_DEVICE DeviceOutcome outcome_of(double weight, double squares, bool leave_sums) {
  DeviceOutcome outcome;
  outcome.weight = weight;
  outcome.scale = leave_sums ? 1 / weight : 1;
  outcome.norm = sqrt(squares) / weight;
  outcome.finite = outcome.norm - outcome.norm == 0 ? 1 : 0;
  return outcome;
}

}  // namespace ddl::gradient_pass
