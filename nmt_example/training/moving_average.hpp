#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "nmt_example/backend/backend.hpp"
#include "nmt_example/model/parameters.hpp"
#include "nmt_example/training/host_mirror.hpp"

namespace nmt {

/// The exponential moving average of a model's parameters (Polyak and Juditsky 1992): after each update,
/// average += (1 - d) (parameters - average), d as `average_factors` says. Memory: as many values as
/// parameters. Cost of an update: two reads and a write of each.
class MovingAverage {
 public:
  MovingAverage(Backend& backend, ParameterSet& parameters);

  /// Starts again from the parameters as they are.
  void restart();
  /// To be called after an update, whose `StepState::average_factors`, in the backend's memory, are these.
  /// Queued on the backend.
  void update(const StepFactors* factors);
  /// The averages of the parameters, by the parameters' names.
  [[nodiscard]] std::vector<NamedView> values() const;
  [[nodiscard]] std::size_t bytes() const noexcept;

  /// While it lives, the model's parameters are the averages. Memory: as many values again.
  class InModel {
   public:
    explicit InModel(const MovingAverage& average);
    InModel(const InModel&) = delete;
    InModel& operator=(const InModel&) = delete;
    ~InModel();

   private:
    const MovingAverage& average_;
    std::shared_ptr<void> own_memory_;
    Tensor own_;
  };

 private:
  [[nodiscard]] Tensor average() const;

  Backend& backend_;
  ParameterSet& parameters_;
  std::shared_ptr<void> memory_;
};

}  // namespace nmt
