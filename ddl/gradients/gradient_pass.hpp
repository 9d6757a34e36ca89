#pragma once

// Passes over the gradients of a bucket on a device: what each thread of a kernel does. The host's compiler
// reads this too, for tests.

#include <cmath>
#include <cstdint>

#include "collectives/kernels/element.hpp"
#include "collectives/kernels/host_device.hpp"
#include "ddl/gradients/exact_squares.hpp"

namespace ddl::gradient_pass {

/// Part of a gradient in a bucket.
struct Piece {
  float* gradient;           ///< Its first element.
  const float* accumulated;  ///< What micro-batches before have left of it.
  float* residual;           ///< What 16 bits owe to the next step; null for f32.
  std::uint64_t begin, end;  ///< Its elements in the bucket.
};

/// What travels.
enum class Wire : std::uint32_t { f32, bf16, f16 };

/// What is reduced as one. The pieces lie one after the other, in the device's memory.
struct Bucket {
  const Piece* pieces;
  std::uint32_t piece_count;
  Wire wire;
  void* values;  ///< For f32 they may be where the gradients are.
  std::uint64_t count;
};

/// What a step ends with, in the device's memory.
struct Outcome {
  double weight;
  double scale;
  double norm;
  std::uint32_t finite;
};

/// A thread of a kernel.
struct Lane {
  std::uint32_t block, blocks;
  std::uint32_t thread, threads;
};

constexpr std::uint32_t values_at_once = 4;
/// A block's turn: so many elements for each of its threads.
constexpr std::uint32_t chunk_of_thread = 16;

/// The piece that an element is in.
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

/// Reads this thread's elements by `load(piece, element)`, some at a time, before it gives them to
/// `store(piece, element, value)`.
template <typename Load, typename Store>
DDL_HOST_DEVICE void each_element(const Bucket& bucket, const Range& range, const Lane& lane,
                                  const Load& load, const Store& store) {
  const std::uint64_t chunk = std::uint64_t{lane.threads} * chunk_of_thread;
  for (std::uint64_t at = range.first + lane.block * chunk; at < range.beyond; at += lane.blocks * chunk) {
    const std::uint64_t end = at + chunk < range.beyond ? at + chunk : range.beyond;
    std::uint64_t begin = at;
    for (std::uint32_t k = piece_at(bucket, at); begin < end; ++k) {
      const Piece piece = bucket.pieces[k];
      const std::uint64_t stop = piece.end < end ? piece.end : end;
      for (std::uint64_t i = begin + lane.thread; i < stop; i += values_at_once * lane.threads) {
        float values[values_at_once] = {};
        DDL_UNROLL
        for (std::uint32_t u = 0; u < values_at_once; ++u) {
          const std::uint64_t element = i + u * lane.threads;
          if (element < stop) values[u] = load(piece, element);
        }
        DDL_UNROLL
        for (std::uint32_t u = 0; u < values_at_once; ++u) {
          const std::uint64_t element = i + u * lane.threads;
          if (element < stop) store(piece, element, values[u]);
        }
      }
      begin = stop;
    }
  }
}

DDL_HOST_DEVICE float scaled(float value, double factor) { return static_cast<float>(value * factor); }

DDL_HOST_DEVICE float read_value(const Bucket& bucket, std::uint64_t element) {
  namespace numbers = collectives::device;
  if (bucket.wire == Wire::f32) return static_cast<const float*>(bucket.values)[element];
  if (bucket.wire == Wire::bf16) return numbers::widen(static_cast<const bfloat16*>(bucket.values)[element]);
  return numbers::widen(static_cast<const float16*>(bucket.values)[element]);
}

/// Returns what was written.
template <typename T>
DDL_HOST_DEVICE float write_narrow(const Bucket& bucket, std::uint64_t element, float value) {
  const T narrowed = collectives::device::narrow<T>(value);
  static_cast<T*>(bucket.values)[element] = narrowed;
  return collectives::device::widen(narrowed);
}

/// In 16 bits, with what they owe from the step before, and owe to the next one.
DDL_HOST_DEVICE void write_value(const Bucket& bucket, const Piece& piece, std::uint64_t element,
                                 float value) {
  if (bucket.wire == Wire::f32) {
    static_cast<float*>(bucket.values)[element] = value;
    return;
  }
  float& residual = piece.residual[element - piece.begin];
  const float wanted = value + residual;
  const float sent = bucket.wire == Wire::bf16 ? write_narrow<bfloat16>(bucket, element, wanted)
                                               : write_narrow<float16>(bucket, element, wanted);
  const float left = wanted - sent;
  residual = left - left == 0 ? left : 0;
}

/// The bucket's values become the gradients times `weight`, and what was accumulated before if `adds`.
DDL_HOST_DEVICE void pack(const Bucket& bucket, double weight, bool adds, const Lane& lane) {
  each_element(
      bucket, {0, bucket.count}, lane,
      [&](const Piece& piece, std::uint64_t element) {
        const std::uint64_t at = element - piece.begin;
        const double own = piece.gradient[at] * weight;
        return static_cast<float>(adds ? own + piece.accumulated[at] : own);
      },
      [&](const Piece& piece, std::uint64_t element, float value) {
        write_value(bucket, piece, element, value);
      });
}

/// The gradients become the bucket's values times `factor`. Calls `see` with each of this thread's values in
/// `own`.
template <typename See>
DDL_HOST_DEVICE void unpack_and_see(const Bucket& bucket, double factor, const Range& own, const Lane& lane,
                                    const See& see) {
  const bool writes = factor != 1 || bucket.piece_count == 0 || bucket.pieces[0].gradient != bucket.values;
  const Range range = writes ? Range{0, bucket.count} : own;
  each_element(
      bucket, range, lane, [&](const Piece&, std::uint64_t element) { return read_value(bucket, element); },
      [&](const Piece& piece, std::uint64_t element, float value) {
        if (element >= own.first && element < own.beyond) see(value);
        if (writes) piece.gradient[element - piece.begin] = scaled(value, factor);
      });
}

/// Returns the sum of the squares of this thread's values in `own`.
DDL_HOST_DEVICE double unpack(const Bucket& bucket, double factor, const Range& own, const Lane& lane) {
  double squares = 0;
  unpack_and_see(bucket, factor, own, lane,
                 [&](float value) { squares += static_cast<double>(value) * value; });
  return squares;
}

/// Gives `add` the squares of this thread's values in `own`: see SquareCollector.
template <typename Add>
DDL_HOST_DEVICE void unpack_exactly(const Bucket& bucket, double factor, const Range& own, const Lane& lane,
                                    const Add& add) {
  SquareCollector squares;
  unpack_and_see(bucket, factor, own, lane, [&](float value) { squares.collect(value, add); });
  squares.flush(add);
}

/// Adds a number to a digit, where one thread does all.
struct AddInTurn {
  ExactSquares& squares;
  void operator()(int digit, std::uint64_t number) const {
    (digit == ExactSquares::digits ? squares.not_finite : squares.digit[digit]) += number;
  }
};

/// target += source * weight
DDL_HOST_DEVICE void add_scaled(float* target, const float* source, std::uint64_t count, double weight,
                                const Lane& lane) {
  const std::uint64_t stride = std::uint64_t{lane.blocks} * lane.threads;
  for (std::uint64_t i = std::uint64_t{lane.block} * lane.threads + lane.thread; i < count; i += stride) {
    target[i] = static_cast<float>(target[i] + source[i] * weight);
  }
}

/// From the sum of all weights and that of all squares.
DDL_HOST_DEVICE Outcome outcome_of(double weight, double squares, bool leave_sums) {
  Outcome outcome;
  outcome.weight = weight;
  outcome.scale = leave_sums ? 1 / weight : 1;
  outcome.norm = sqrt(squares) / weight;
  outcome.finite = outcome.norm - outcome.norm == 0 ? 1 : 0;
  return outcome;
}

}  // namespace ddl::gradient_pass
