// The README's lines with a model small enough to check: without this test the example might not compile or
// not train. Exits with 1 if the fitted line is not y = 2x + 1 on this rank.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "ddl/ddl.hpp"

namespace {

struct Dataset {
  [[nodiscard]] std::size_t size() const { return 256; }
  [[nodiscard]] static float x(std::size_t i) { return static_cast<float>(i) / 128.0F - 1.0F; }
  [[nodiscard]] static float y(std::size_t i) { return 2.0F * x(i) + 1.0F; }
};

class Model {
 public:
  // Every rank starts from other weights, so that without the broadcast they would stay different.
  explicit Model(float start) : weights_{start, -start} {}

  std::vector<ddl::Parameter> parameters() { return {{"slope", slope()}, {"offset", offset()}}; }
  std::vector<ddl::Gradient> gradients() {
    return {{"slope", std::span(gradients_).subspan(0, 1)}, {"offset", std::span(gradients_).subspan(1, 1)}};
  }

  double backward(const std::vector<std::size_t>& samples, const std::function<void(std::size_t)>& ready) {
    gradients_ = {};
    for (const std::size_t i : samples) {
      const float error = weights_[0] * Dataset::x(i) + weights_[1] - Dataset::y(i);
      gradients_[0] += error * Dataset::x(i);
      gradients_[1] += error;
    }
    ready(1);
    ready(0);
    return static_cast<double>(samples.size());
  }
  void descend(double rate) {
    for (std::size_t i = 0; i < 2; ++i) weights_[i] -= static_cast<float>(rate) * gradients_[i];
  }
  void save() { ++saves_; }

  [[nodiscard]] bool is_fitted() const {
    return std::abs(weights_[0] - 2.0F) < 1e-3F && std::abs(weights_[1] - 1.0F) < 1e-3F;
  }
  [[nodiscard]] int saves() const { return saves_; }

 private:
  std::span<float> slope() { return std::span(weights_).subspan(0, 1); }
  std::span<float> offset() { return std::span(weights_).subspan(1, 1); }

  std::array<float, 2> weights_;
  std::array<float, 2> gradients_{};
  int saves_ = 0;
};

struct Optimizer {
  Model& model;
  void step(double rate) const { model.descend(rate); }
};

int train() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  Model model(rank == nullptr ? 3.0F : 3.0F + std::strtof(rank, nullptr));
  const Dataset dataset;
  const Optimizer optimizer{model};
  const auto schedule = [](std::uint64_t) { return 0.2; };
  const int steps = 200;
#include "readme_snippet.inc"
  const bool saved = model.saves() == (ctx.is_root() ? 1 : 0);
  if (!model.is_fitted() || !saved) {
    std::fprintf(stderr, "rank %d: fitted %d, saved %d\n", ctx.rank(), model.is_fitted(), model.saves());
    return 1;
  }
  return 0;
}

}  // namespace

int main() {
  try {
    return train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
