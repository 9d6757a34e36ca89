// Trains a two-layer perceptron to tell the arms of three noisy spirals apart: mini-batches, SGD with
// momentum.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ddl/ddl.hpp>
#include <exception>
#include <fstream>
#include <map>
#include <numbers>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

namespace {

constexpr std::size_t arms = 3;

constexpr std::string_view usage = R"(usage: trainer [--flag value]...
  --samples N        points to train on (6000); as many halved are kept for tests
  --hidden N         hidden units (64)
  --batch_size N     points in a mini-batch (16)
  --epochs N         passes over the points (20)
  --learning_rate X  at the start; it falls to 0 in a straight line (0.02)
  --momentum X       (0.9)
  --seed N           of the points and their order (1)
  --init_seed N      of the weights (1)
  --checkpoint FILE  written after every epoch (perceptron.txt)
)";

struct Settings {
  std::size_t samples = 6000;
  std::size_t hidden = 64;
  std::size_t batch_size = 16;
  std::size_t epochs = 20;
  double learning_rate = 0.02;
  double momentum = 0.9;
  std::size_t seed = 1;
  std::size_t init_seed = 1;
  std::string checkpoint = "perceptron.txt";
};

template <typename T>
void set(T& value, std::string_view text) {
  if constexpr (std::is_same_v<T, std::string>) {
    value = text;
  } else {
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    if (error != std::errc() || end != text.end()) throw std::invalid_argument("expected a number");
  }
}

Settings parse(std::span<char*> arguments) {
  Settings settings;
  const std::map<std::string_view, std::variant<std::size_t*, double*, std::string*>> flags = {
      {"--samples", &settings.samples},
      {"--hidden", &settings.hidden},
      {"--batch_size", &settings.batch_size},
      {"--epochs", &settings.epochs},
      {"--momentum", &settings.momentum},
      {"--learning_rate", &settings.learning_rate},
      {"--seed", &settings.seed},
      {"--init_seed", &settings.init_seed},
      {"--checkpoint", &settings.checkpoint},
  };
  for (std::size_t i = 1; i < arguments.size(); i += 2) {
    const std::string flag = arguments[i];
    const auto known = flags.find(flag);
    if (known == flags.end()) throw std::invalid_argument(flag + ": there is no such flag; see --help");
    if (i + 1 == arguments.size()) throw std::invalid_argument(flag + ": its value is missing");
    try {
      std::visit([&](auto* value) { set(*value, arguments[i + 1]); }, known->second);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(flag + ": found '" + arguments[i + 1] + "', " + error.what());
    }
  }
  if (settings.samples < 2 || settings.hidden == 0 || settings.batch_size == 0) {
    throw std::invalid_argument("--samples must be 2 at least, --hidden and --batch_size 1");
  }
  return settings;
}

struct Point {
  float x = 0;
  float y = 0;
  std::size_t arm = 0;
};

using Dataset = std::vector<Point>;

/// Points along three arms that wind once round the origin, with noise in the angle.
Dataset spirals(std::size_t size, std::size_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> distance(0.05, 1);
  std::normal_distribution<double> noise(0, 0.15);
  Dataset points(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t arm = i % arms;
    const double radius = distance(random);
    const double turn = radius + static_cast<double>(arm) / arms;
    const double angle = 2 * std::numbers::pi * turn + noise(random);
    points[i] = {static_cast<float>(radius * std::sin(angle)), static_cast<float>(radius * std::cos(angle)),
                 arm};
  }
  return points;
}

/// Two inputs, hidden units that are max(0, .), and a softmax over the arms.
class Perceptron {
 public:
  Perceptron(std::size_t hidden, std::size_t seed)
      : hidden_(hidden),
        parameters_((2 + 1 + arms) * hidden + arms),
        gradients_(parameters_.size()),
        units_(hidden) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> inputs(0, 1);
    std::normal_distribution<float> outputs(0, std::sqrt(2.0F / static_cast<float>(hidden)));
    for (float& weight : span_of(parameters_, 0, 2 * hidden)) weight = inputs(random);
    for (float& weight : span_of(parameters_, 3 * hidden, arms * hidden)) weight = outputs(random);
  }

  std::span<float> parameters() { return parameters_; }
  std::span<float> gradients() { return gradients_; }

  /// Computes the gradients of the sum of the samples' losses, and returns that sum.
  double backward(const Dataset& points, std::span<const std::size_t> samples) {
    std::fill(gradients_.begin(), gradients_.end(), 0.0F);
    double loss = 0;
    for (const std::size_t i : samples) loss += add_gradients(points[i]);
    return loss;
  }

  void divide_gradients(std::size_t divisor) {
    for (float& gradient : gradients_) gradient /= static_cast<float>(divisor);
  }

  /// The share of points that are assigned to the right arm.
  double accuracy(const Dataset& points) {
    const auto right = std::count_if(points.begin(), points.end(), [&](const Point& point) {
      const std::array<float, arms> scores = forward(point);
      return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin()) ==
             point.arm;
    });
    return static_cast<double>(right) / static_cast<double>(points.size());
  }

 private:
  // One block holds all parameters: the first layer's weights and biases, then the second's.
  static std::span<float> span_of(std::vector<float>& block, std::size_t first, std::size_t count) {
    return std::span(block).subspan(first, count);
  }

  std::array<float, arms> forward(const Point& point) {
    const float* const weights = parameters_.data();
    const float* const biases = weights + 2 * hidden_;
    const float* const output_weights = biases + hidden_;
    const float* const output_biases = output_weights + arms * hidden_;
    std::array<float, arms> scores{};
    std::copy_n(output_biases, arms, scores.begin());
    for (std::size_t h = 0; h < hidden_; ++h) {
      units_[h] = std::max(0.0F, weights[2 * h] * point.x + weights[2 * h + 1] * point.y + biases[h]);
      for (std::size_t a = 0; a < arms; ++a) scores[a] += output_weights[arms * h + a] * units_[h];
    }
    return scores;
  }

  double add_gradients(const Point& point) {
    std::array<float, arms> errors = forward(point);
    const float greatest = *std::max_element(errors.begin(), errors.end());
    for (float& error : errors) error = std::exp(error - greatest);
    const float sum = std::accumulate(errors.begin(), errors.end(), 0.0F);
    for (float& error : errors) error /= sum;
    const double loss = -std::log(std::max(errors[point.arm], 1e-30F));
    errors[point.arm] -= 1;

    const float* const output_weights = parameters_.data() + 3 * hidden_;
    float* const weights = gradients_.data();
    float* const biases = weights + 2 * hidden_;
    float* const outputs = biases + hidden_;
    float* const output_biases = outputs + arms * hidden_;
    for (std::size_t a = 0; a < arms; ++a) output_biases[a] += errors[a];
    for (std::size_t h = 0; h < hidden_; ++h) {
      if (units_[h] <= 0) continue;
      float error = 0;
      for (std::size_t a = 0; a < arms; ++a) {
        outputs[arms * h + a] += errors[a] * units_[h];
        error += errors[a] * output_weights[arms * h + a];
      }
      weights[2 * h] += error * point.x;
      weights[2 * h + 1] += error * point.y;
      biases[h] += error;
    }
    return loss;
  }

  std::size_t hidden_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> units_;  // hidden units of the last point
};

/// SGD with momentum.
class Optimizer {
 public:
  Optimizer(std::size_t parameters, double momentum)
      : momentum_(static_cast<float>(momentum)), velocity_(parameters) {}

  void step(std::span<float> parameters, std::span<const float> gradients, double learning_rate) {
    const auto rate = static_cast<float>(learning_rate);
    for (std::size_t i = 0; i < velocity_.size(); ++i) {
      velocity_[i] = momentum_ * velocity_[i] + gradients[i];
      parameters[i] -= rate * velocity_[i];
    }
  }

 private:
  float momentum_;
  std::vector<float> velocity_;
};

struct Batch {
  std::size_t step = 0;  // counts from 0 over all epochs
  std::vector<std::size_t> samples;
};

struct SamplerOptions {
  std::size_t seed = 1;
  std::size_t batch_size = 1;
};

/// Returns each sample once per epoch, in a new random order in each epoch.
class Sampler {
 public:
  Sampler(std::size_t size, SamplerOptions options)
      : random_(options.seed), batch_size_(options.batch_size), order_(size) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }

  [[nodiscard]] std::size_t steps_per_epoch() const {
    return (order_.size() + batch_size_ - 1) / batch_size_;
  }

  Batch next() {
    const std::size_t first = step_ % steps_per_epoch() * batch_size_;
    if (first == 0) std::shuffle(order_.begin(), order_.end(), random_);
    const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(first);
    const std::size_t count = std::min(batch_size_, order_.size() - first);
    return {step_++, std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count))};
  }

 private:
  std::mt19937_64 random_;
  std::size_t batch_size_;
  std::vector<std::size_t> order_;
  std::size_t step_ = 0;
};

void save(const std::string& path, std::span<const float> parameters) {
  std::ofstream file(path);
  file.precision(9);
  for (const float parameter : parameters) file << parameter << '\n';
  if (!file.flush()) throw std::runtime_error(path + ": the checkpoint could not be written");
}

void finish_epoch(const Settings& settings, std::size_t epoch, double loss, Perceptron& model,
                  const Dataset& test_points) {
  std::printf("epoch %2zu: loss %.4f, accuracy on test points %.2f%%\n", epoch, loss,
              100 * model.accuracy(test_points));
  std::fflush(stdout);
  save(settings.checkpoint, model.parameters());
}

void train(const Settings& settings) {
  auto ctx = ddl::Context::from_environment();
  const Dataset points = spirals(settings.samples, settings.seed);
  const Dataset test_points = spirals(settings.samples / 2, settings.seed + 1);
  Perceptron model(settings.hidden, settings.init_seed);
  ddl::broadcast_parameters(ctx, {{"model", model.parameters()}});
  ddl::GradientReducer reducer(ctx, {{"model", model.gradients()}}, {.gradients = ddl::GradientKind::sum});
  Optimizer optimizer(model.parameters().size(), settings.momentum);
  ddl::ShardedSampler sampler(ctx, points.size(), {.seed = settings.seed, .batch_size = settings.batch_size});
  const std::size_t steps = settings.epochs * sampler.steps_per_epoch();
  const auto schedule = [&](std::size_t step) {
    return settings.learning_rate * (1 - static_cast<double>(step) / static_cast<double>(steps));
  };
  ddl::LearningRateScaling scaling(ctx, schedule, {.rule = ddl::ScalingRule::linear});
  for (std::size_t epoch = 1; epoch <= settings.epochs; ++epoch) {
    double loss = 0;
    std::size_t seen = 0;
    for (std::size_t i = 0; i < sampler.steps_per_epoch(); ++i) {
      const auto batch = sampler.next();
      loss += model.backward(points, batch.samples);
      seen += batch.samples.size();
      reducer.ready(0);
      reducer.wait(batch.samples.size());
      optimizer.step(model.parameters(), model.gradients(), scaling.learning_rate(batch.step));
    }
    ctx.root_only("epoch", [&] { finish_epoch(settings, epoch, loss / seen, model, test_points); });
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count == 2 && std::string_view(arguments[1]) == "--help") return std::fputs(usage.data(), stdout) < 0;
    train(parse({arguments, static_cast<std::size_t>(count)}));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
