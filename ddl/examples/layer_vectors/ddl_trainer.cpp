// Trains a network of fully connected layers to tell the arms of three noisy spirals apart. As in C++14 libraries,
// each layer owns its weights and a vector of gradients for each sample of a mini-batch, which its update merges.
//   trainer [CHECKPOINT [SEED_OF_THE_FIRST_WEIGHTS]]

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ddl/parameter_list.hpp>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

const char* const usage =
    "usage: trainer [CHECKPOINT [SEED]]\n"
    "Trains a network to tell the arms of three spirals apart and writes its weights to CHECKPOINT (spirals.txt).\n"
    "SEED is that of the first weights (1).\n";

constexpr std::size_t arms = 3, hidden = 32, batch_size = 64, epochs = 40;

/// One vector for each sample.
using Samples = std::vector<std::vector<float>>;

struct Dataset {
  Samples points;
  std::vector<std::size_t> labels;
};

/// Points along three arms that wind once round the origin, with noise in the angle.
Dataset spirals(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> distance(0.05, 1), noise(-0.2, 0.2);
  Dataset data;
  for (std::size_t i = 0; i < size; ++i) {
    const double radius = distance(random);
    const double angle = 6.2831853 * (radius + static_cast<double>(i % arms) / arms) + noise(random);
    const double x = radius * std::sin(angle), y = radius * std::cos(angle);
    data.points.push_back({static_cast<float>(x), static_cast<float>(y)});
    data.labels.push_back(i % arms);
  }
  return data;
}

/// A fully connected layer with units tanh(.), or the last one with a softmax.
class Layer {
 public:
  Layer(std::size_t inputs, std::size_t outputs, bool last, std::mt19937& random)
      : inputs_(inputs), outputs_(outputs), last_(last), weights_((inputs + 1) * outputs) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    const float scale = std::sqrt(3.0F / static_cast<float>(inputs));
    std::generate(weights_.begin(), weights_.end(), [&] { return scale * uniform(random); });
  }

  /// Each output's weights of the inputs, then its bias.
  std::vector<float>& weights() { return weights_; }
  /// One vector like the weights for each sample.
  Samples& gradients() { return gradients_; }

  /// Makes room for the gradients of mini-batches of `samples` samples.
  void set_sample_count(std::size_t samples) { gradients_.assign(samples, std::vector<float>(weights_.size())); }

  Samples forward(const Samples& inputs) {
    in_ = inputs;
    out_.assign(inputs.size(), std::vector<float>(outputs_));
    for (std::size_t s = 0; s < inputs.size(); ++s) {
      for (std::size_t o = 0; o < outputs_; ++o) {
        const float* const weights = &weights_[o * (inputs_ + 1)];
        float sum = weights[inputs_];
        for (std::size_t i = 0; i < inputs_; ++i) sum += weights[i] * in_[s][i];
        out_[s][o] = last_ ? std::exp(sum) : std::tanh(sum);
      }
      if (!last_) continue;
      float sum = 0;
      for (const float value : out_[s]) sum += value;
      for (float& value : out_[s]) value /= sum;
    }
    return out_;
  }

  /// Adds each sample's gradients to its vector. `errors`: the loss's derivatives by the layer's outputs (of the
  /// last one: by its scores); returns those by its inputs.
  Samples backward(const Samples& errors) {
    Samples below(errors.size(), std::vector<float>(inputs_));
    for (std::size_t s = 0; s < errors.size(); ++s) {
      for (std::size_t o = 0; o < outputs_; ++o) {
        const float error = last_ ? errors[s][o] : errors[s][o] * (1 - out_[s][o] * out_[s][o]);
        const std::size_t first = o * (inputs_ + 1);
        for (std::size_t i = 0; i < inputs_; ++i) {
          gradients_[s][first + i] += error * in_[s][i];
          below[s][i] += error * weights_[first + i];
        }
        gradients_[s][first + inputs_] += error;
      }
    }
    return below;
  }

  /// Merges the samples' gradients into their sum, takes a step with it, and zeroes them.
  void update(float rate) {
    std::vector<float>& sum = gradients_.front();
    for (std::size_t s = 1; s < gradients_.size(); ++s) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients_[s][i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i) weights_[i] -= rate * sum[i];
    for (std::vector<float>& gradient : gradients_) std::fill(gradient.begin(), gradient.end(), 0.0F);
  }

 private:
  std::size_t inputs_, outputs_;
  bool last_;
  std::vector<float> weights_;
  Samples gradients_, in_, out_;
};

Samples forward(std::vector<Layer>& layers, Samples values) {
  for (Layer& layer : layers) values = layer.forward(values);
  return values;
}

double accuracy(std::vector<Layer>& layers, const Dataset& data) {
  const Samples found = forward(layers, data.points);
  std::size_t right = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto best = std::max_element(found[i].begin(), found[i].end()) - found[i].begin();
    right += static_cast<std::size_t>(best) == data.labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(found.size());
}

void save(const std::string& path, std::vector<Layer>& layers) {
  std::ofstream file(path);
  file.precision(9);
  for (Layer& layer : layers) {
    for (const float weight : layer.weights()) file << weight << '\n';
  }
  if (!file.flush()) throw std::runtime_error(path + ": the checkpoint could not be written");
}

void train(const std::string& path, unsigned seed) {
  const Dataset data = spirals(3072, 7), test_data = spirals(1536, 8);
  std::mt19937 random(seed);
  std::vector<Layer> layers;
  layers.emplace_back(2, hidden, false, random);
  layers.emplace_back(hidden, hidden, false, random);
  layers.emplace_back(hidden, arms, true, random);
  const std::size_t rank = ddl_rank(), begin_of_rank = batch_size * rank / ddl_size();
  const std::size_t samples = batch_size * (rank + 1) / ddl_size() - begin_of_rank;
  for (Layer& layer : layers) layer.set_sample_count(samples);
  ddl::ParameterList parameters;
  for (Layer& layer : layers) parameters.add(layer.weights(), layer.gradients());
  ddl::Reducer reducer(parameters, ddl::leave_sums());
  for (std::size_t epoch = 1; epoch <= epochs; ++epoch) {
    for (std::size_t first = begin_of_rank; first < data.points.size(); first += batch_size) {
      const auto begin = data.points.begin() + static_cast<std::ptrdiff_t>(first);
      Samples errors = forward(layers, Samples(begin, begin + static_cast<std::ptrdiff_t>(samples)));
      for (std::size_t s = 0; s < samples; ++s) errors[s][data.labels[first + s]] -= 1;
      for (std::size_t l = layers.size(); l-- > 0;) {
        errors = layers[l].backward(errors);
        reducer.ready(l);
      }
      reducer.wait(samples);
      for (Layer& layer : layers) layer.update(0.005F);
    }
    if (rank != 0) continue;
    std::printf("epoch %2d: accuracy on test points %.2f%%\n", static_cast<int>(epoch),
                100 * accuracy(layers, test_data));
  }
  if (rank == 0) save(path, layers);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string path = count > 1 ? arguments[1] : "spirals.txt";
  char none = '\0', *rest = &none;
  const unsigned long seed = count > 2 ? std::strtoul(arguments[2], &rest, 10) : 1;
  if (path[0] == '-' || *rest != '\0' || count > 3) {
    const bool asks = path == "--help";
    std::fputs(usage, asks ? stdout : stderr);
    return asks ? 0 : 2;
  }
  return ddl::run(nullptr, [&] { train(path, static_cast<unsigned>(seed)); });
}
