#pragma once

#include <ddl/ddl.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ddl {

/// Throws std::runtime_error with ddl_error_message() if a function of ddl.h returned an error:
/// `ddl::throw_on_error(ddl_init(nullptr))`.
inline void throw_on_error(int code) {
  if (code != DDL_OK) throw std::runtime_error(ddl_error_message());
}

/// Runs a program's `body()` between `ddl_init(options)` and `ddl_finalize()`, and returns its exit status:
/// `int main() { return ddl::run(nullptr, [] { train(); }); }`. If an exception leaves `body`, its text is
/// printed, the other ranks' calls fail with it, and the result is 1. Collective.
template <typename Body>
int run(const char* options, const Body& body) {
  try {
    throw_on_error(ddl_init(options));
    body();
    throw_on_error(ddl_finalize());
    return 0;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    if (ddl_abort(text.c_str()) != DDL_OK) std::fprintf(stderr, "%s\n", text.c_str());
    ddl_finalize();
    return 1;
  }
}

/// Options of a reducer of gradients that backward leaves as means over this rank's items.
inline ddl_reducer_options means() noexcept {
  ddl_reducer_options options = ddl_reducer_options();
  options.gradients = DDL_GRADIENT_MEANS;
  return options;
}

/// The same of sums, which become means.
inline ddl_reducer_options sums() noexcept {
  ddl_reducer_options options = ddl_reducer_options();
  options.gradients = DDL_GRADIENT_SUMS;
  return options;
}

/// The same of sums that stay sums, for an update that takes sums.
inline ddl_reducer_options leave_sums() noexcept {
  ddl_reducer_options options = sums();
  options.leave_sums = 1;
  return options;
}

/// A model's tensors for the functions of ddl.h (`ddl_broadcast_parameters(list.data(), list.size(), 0)`),
/// for C++11 and later: the vectors of float or double in which a trainer's layers keep weights and
/// gradients. The vectors must stay in place, and keep their sizes, while a reducer uses them; the list need
/// not. C++20 programs use `ddl::Model`. Not thread-safe. Throws std::invalid_argument for a gradient of
/// another size than its tensor's, and std::out_of_range for none.
class ParameterList {
 public:
  /// A tensor that no gradient trains. `name`, for messages and checkpoints, must outlive the list; null: the
  /// tensor's index.
  template <typename Vector>
  void add(Vector& values, const char* name = nullptr) {
    ddl_parameter parameter = ddl_parameter();
    parameter.name = name;
    parameter.values = values.data();
    parameter.count = static_cast<int64_t>(values.size());
    parameter.type = type_of(values.data());
    parameters_.push_back(parameter);
  }

  /// A tensor and its gradient, a vector of as many elements.
  template <typename Vector>
  void add(Vector& values, Vector& gradient, const char* name = nullptr) {
    check_size(gradient.size(), values.size(), name);
    add(values, name);
    parameters_.back().gradient = gradient.data();
  }

  /// A tensor and one gradient for each sample or thread, at least one. `ddl_reducer_ready` adds the others
  /// to the first and zeroes them.
  template <typename Vector, typename Allocator>
  void add(Vector& values, std::vector<Vector, Allocator>& gradients, const char* name = nullptr) {
    for (const Vector& gradient : gradients) check_size(gradient.size(), values.size(), name);
    add(values, gradients.at(0), name);
    summands_.emplace_back();
    for (std::size_t i = 1; i < gradients.size(); ++i) summands_.back().push_back(gradients[i].data());
    parameters_.back().summands = summands_.back().data();
    parameters_.back().summand_count = static_cast<int>(summands_.back().size());
  }

  /// The tensors in the order in which they were added: the first argument of ddl.h's functions. Valid until
  /// the next `add`.
  const ddl_parameter* data() const noexcept { return parameters_.data(); }
  /// How many there are.
  int size() const noexcept { return static_cast<int>(parameters_.size()); }

 private:
  void check_size(std::size_t gradient, std::size_t values, const char* name) const {
    if (gradient == values) return;
    throw std::invalid_argument("parameter " +
                                (name != nullptr ? std::string(name) : std::to_string(size())) +
                                ": found a gradient of " + std::to_string(gradient) + " elements, expected " +
                                std::to_string(values) + ", as many as the parameter has");
  }

  static int type_of(const float* /*values*/) noexcept { return DDL_F32; }
  static int type_of(const double* /*values*/) noexcept { return DDL_F64; }

  std::vector<ddl_parameter> parameters_;
  std::vector<std::vector<void*>> summands_;  // whose elements stay in place when this grows
};

/// A reducer of ddl.h that frees itself, for C++11 and later. Functions throw as `throw_on_error` does.
/// `ready` and `absent` may be called by any thread. C++20 programs use `ddl::GradientReducer`.
class Reducer {
 public:
  /// No reducer yet: for one that `bind` makes later.
  Reducer() noexcept = default;
  /// Gives all ranks rank 0's values, and makes a reducer for the list's gradients. Collective.
  Reducer(const ParameterList& list, ddl_reducer_options options) { bind(list, options); }
  Reducer(Reducer&& other) noexcept : reducer_(other.release()) {}
  Reducer& operator=(Reducer&& other) noexcept {
    Reducer taken(std::move(other));
    std::swap(reducer_, taken.reducer_);
    return *this;
  }
  /// Waits for reductions that have been started.
  ~Reducer() {
    if (reducer_ != nullptr && ddl_rank() >= 0) ddl_reducer_free(reducer_);  // ddl_finalize frees it too
  }

  /// The first call makes the reducer as the constructor does. A later one, between steps, only says where
  /// the same gradients are now (`ddl_reducer_rebind`), for trainers whose vectors move; it may be made in
  /// every step.
  void bind(const ParameterList& list, ddl_reducer_options options) {
    if (reducer_ != nullptr) return throw_on_error(ddl_reducer_rebind(reducer_, list.data(), list.size()));
    options.broadcast_values = 1;
    throw_on_error(ddl_reducer_create(list.data(), list.size(), &options, &reducer_));
  }

  /// Starts a step over `weight` items of this rank.
  void begin(double weight) { throw_on_error(ddl_reducer_begin(made(), weight)); }
  /// The gradient of the list's tensor `index` is final and may be reduced.
  void ready(int index) { throw_on_error(ddl_reducer_ready(made(), index)); }
  /// It has no value on this rank in this step.
  void absent(int index) { throw_on_error(ddl_reducer_absent(made(), index)); }
  /// Ends a step; `weight`: this rank's number of items, unless `begin` got it. Collective.
  ddl_step wait(double weight = DDL_GIVEN) {
    ddl_step step = ddl_step();
    throw_on_error(ddl_reducer_wait(made(), weight, &step));
    return step;
  }
  /// For the functions of ddl.h; null before `bind`.
  ddl_reducer* get() const noexcept { return reducer_; }

 private:
  ddl_reducer* made() const {
    if (reducer_ == nullptr)
      throw std::logic_error("ddl::Reducer: found no reducer, expected a call of bind before");
    return reducer_;
  }
  ddl_reducer* release() noexcept {
    ddl_reducer* const released = reducer_;
    reducer_ = nullptr;
    return released;
  }

  ddl_reducer* reducer_ = nullptr;
};

}  // namespace ddl
