#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "ddl/context.hpp"
#include "nmt_example/backend/backend.hpp"
#include "nmt_example/model/parameters.hpp"

namespace nmt {

/// Sets a model's parameters, while this lives, to the mean of their values and of those in other checkpoints
/// (tensorflow/nmt's avg_ckpts); then they have their values back. The sums are in fp64, in the order of the
/// list. Memory: three times the parameters. Collective, like `ddl::SavedCheckpoint`; errors are agreed.
class AverageOfCheckpoints {
 public:
  AverageOfCheckpoints(ddl::Context& context, Backend& backend, ParameterSet& parameters,
                       std::span<const std::filesystem::path> checkpoints);
  AverageOfCheckpoints(const AverageOfCheckpoints&) = delete;
  AverageOfCheckpoints& operator=(const AverageOfCheckpoints&) = delete;
  ~AverageOfCheckpoints();

 private:
  Backend& backend_;
  ParameterSet& parameters_;
  std::vector<float> own_;
};

}  // namespace nmt
