#pragma once

#include <cstddef>

#include "ddl/data_type.hpp"
#include "ddl/gradients/gradient_pass.hpp"

struct CUstream_st;

namespace ddl {

/// What a reducer has a device do, one after the other, beside the trainer's streams. Calls queue, and return
/// at once, unless said otherwise. All ranks make the same `all_reduce`s. Not thread-safe.
class GradientQueue {
 public:
  using Stream = CUstream_st*;

  GradientQueue() = default;
  GradientQueue(const GradientQueue&) = delete;
  GradientQueue& operator=(const GradientQueue&) = delete;
  virtual ~GradientQueue() = default;

  // For set-up: these wait for the device.
  /// Zeros, that `all_reduce` reaches without copies. Collective. Valid as long as this.
  virtual std::byte* allocate_shared(std::size_t bytes) = 0;
  /// Zeros, for this rank alone. Valid as long as this.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  /// Whether `all_reduce` reaches the memory without copies.
  [[nodiscard]] virtual bool reaches(const void* data, std::size_t bytes) const = 0;

  /// What is queued here from now on waits for what is queued on `stream`.
  virtual void follow(Stream stream) = 0;
  /// What is queued on `stream` from now on waits for what is queued here.
  virtual void precede(Stream stream) = 0;

  virtual void zero(void* data, std::size_t bytes) = 0;
  virtual void set(double* to, double value) = 0;
  virtual void add_scaled(float* target, const float* source, std::size_t count, double weight) = 0;
  /// values = gradients * weight, and what was accumulated before.
  virtual void pack(const gradient_pass::Bucket& bucket, double weight, bool adds_accumulated) = 0;
  virtual void all_reduce(void* data, std::size_t count, DataType type) = 0;

  struct Unpacking {
    const double* weight;      ///< All ranks': the gradients become means, or stay sums if it is null.
    gradient_pass::Range own;  ///< Of which the squares are added up.
    double* sums_of_squares;   ///< `sums_of_unpacking` of them; null: `exact_squares` instead.
    ExactSquares* exact_squares = nullptr;  ///< To which the squares are added.
  };
  /// gradients = values, scaled.
  virtual void unpack(const gradient_pass::Bucket& bucket, const Unpacking& unpacking) = 0;
  [[nodiscard]] virtual std::size_t sums_of_unpacking() const noexcept = 0;
  /// *sum = that of `count` values, in an order that depends on their number alone.
  virtual void add_up(const double* values, std::size_t count, double* sum) = 0;
  /// Carries, after counting what is not finite once more if `has_problem`: for an all_reduce of all its
  /// numbers.
  virtual void carry(ExactSquares* squares, bool has_problem) = 0;
  /// *sum = all ranks' squares.
  virtual void add_up(ExactSquares* squares, double* sum) = 0;
  virtual void conclude(const double* weight, const double* squares, bool leave_sums,
                        gradient_pass::Outcome* outcome) = 0;

  /// Waits for what is queued, and returns the outcome. Throws what has failed.
  virtual gradient_pass::Outcome fetch(const gradient_pass::Outcome* outcome) = 0;
};

}  // namespace ddl
