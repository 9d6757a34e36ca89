#pragma once

#include <ddl/ddl.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddl {

/// Throws std::runtime_error with ddl_error_message() if a function of ddl.h returned an error:
/// `ddl::throw_on_error(ddl_init(nullptr))`.
inline void throw_on_error(int code) {
  if (code != DDL_OK) throw std::runtime_error(ddl_error_message());
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

}  // namespace ddl
