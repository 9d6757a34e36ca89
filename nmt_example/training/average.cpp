#include "nmt_example/training/average.hpp"

#include "ddl/checkpoint.hpp"
#include "nmt_example/training/host_mirror.hpp"

namespace nmt {

AverageOfCheckpoints::AverageOfCheckpoints(ddl::Context& context, Backend& backend, ParameterSet& parameters,
                                           std::span<const std::filesystem::path> checkpoints)
    : backend_(backend), parameters_(parameters), own_(static_cast<std::size_t>(parameters.layout().extent)) {
  backend.download(parameters.values(), std::span<float>(own_));
  std::vector<double> sums(own_.begin(), own_.end());
  std::vector<float> values(own_.size());
  try {
    for (const std::filesystem::path& path : checkpoints) {
      HostMirror mirror(backend, values_of(parameters));
      ddl::SavedCheckpoint::open(context, path).restore("model", {.whole = mirror.tensors()});
      mirror.upload();
      backend.download(parameters.values(), std::span<float>(values));
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
    }
  } catch (...) {
    backend.upload(parameters.values(), own_);
    backend.parameters_changed();
    throw;
  }
  const double count = static_cast<double>(checkpoints.size()) + 1;
  for (std::size_t i = 0; i < sums.size(); ++i) values[i] = static_cast<float>(sums[i] / count);
  backend.upload(parameters.values(), values);
  backend.parameters_changed();
}

AverageOfCheckpoints::~AverageOfCheckpoints() {
  backend_.upload(parameters_.values(), own_);
  backend_.parameters_changed();
}

}  // namespace nmt
