// Trains a LibTorch network to tell the arms of three noisy spirals apart:
//   trainer [CHECKPOINT [SEED_OF_THE_FIRST_WEIGHTS]]

#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numbers>
#include <string>

namespace {

constexpr const char* usage =
    "usage: trainer [CHECKPOINT [SEED]]\n"
    "Trains a network to tell the arms of three spirals apart and writes it to CHECKPOINT (spirals.pt) after "
    "each\n"
    "epoch. SEED is that of the first weights (1).\n";

constexpr std::int64_t arms = 3, hidden = 64, points_to_train = 3000, points_to_test = 1500;
constexpr std::int64_t batch_size = 16, epochs = 16;

struct Points {
  torch::Tensor places;
  torch::Tensor arm;
};

/// Points along three arms that wind once round the origin, with noise in the angle.
Points spirals(std::int64_t size) {
  const torch::Tensor arm = torch::arange(size) % arms;
  const torch::Tensor radius = 0.05 + 0.95 * torch::rand({size});
  const torch::Tensor angle =
      2 * std::numbers::pi * (radius + arm / static_cast<double>(arms)) + 0.15 * torch::randn({size});
  return {torch::stack({radius * angle.sin(), radius * angle.cos()}, 1), arm};
}

double accuracy(torch::nn::Sequential& net, const Points& points) {
  const torch::NoGradGuard no_gradients;
  return net->forward(points.places).argmax(1).eq(points.arm).to(torch::kDouble).mean().item<double>();
}

void finish_epoch(std::int64_t epoch, torch::nn::Sequential& net, const Points& points,
                  const std::string& path) {
  std::printf("epoch %2d: accuracy on test points %.2f%%\n", static_cast<int>(epoch),
              100 * accuracy(net, points));
  std::fflush(stdout);
  torch::save(net, path);
}

void train(const std::string& path, std::uint64_t seed) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const Points points = spirals(points_to_train);
  const Points test_points = spirals(points_to_test);
  torch::manual_seed(seed);
  torch::nn::Sequential net(torch::nn::Linear(2, hidden), torch::nn::ReLU(),
                            torch::nn::Linear(hidden, hidden), torch::nn::ReLU(),
                            torch::nn::Linear(hidden, arms));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
    for (const torch::Tensor& samples : torch::randperm(points_to_train).split(batch_size)) {
      net->zero_grad(/*set_to_none=*/false);
      const torch::Tensor scores = net->forward(points.places.index_select(0, samples));
      const torch::Tensor loss = torch::nn::functional::cross_entropy(
          scores, points.arm.index_select(0, samples),
          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
      (loss / samples.size(0)).backward();
      optimizer.step();
    }
    finish_epoch(epoch, net, test_points, path);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string path = count > 1 ? arguments[1] : "spirals.pt";
  char none = '\0', *rest = &none;
  const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], &rest, 10) : 1;
  if (path.starts_with('-') || *rest != '\0' || count > 3) {
    const bool asks = path == "--help";
    std::fputs(usage, asks ? stdout : stderr);
    return asks ? 0 : 2;
  }
  try {
    train(path, seed);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
