// What --rnn=auto chooses. Otherwise ranks would compute different bits, or a run train with wrong gradients.

#include "nmt_example/training/lstm_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ddl/error.hpp"
#include "nmt_example/backend/wrapped_backend.hpp"
#include "nmt_example/small_training.hpp"

namespace nmt::test {
namespace {

/// Has a second method, cudnn, which is missing, cannot compute layers, computes what the loop does, nothing,
/// or what is no number.
class TwoMethods final : public WrappedBackend {
 public:
  enum class Second { missing, failing, right, wrong, undefined };
  explicit TwoMethods(Second second) : WrappedBackend(make_cpu_backend(1)), second_(second) {}

  std::string use_lstm(LstmMethod method) override {
    if (method == LstmMethod::wavefront) return "it is on GPUs alone";
    if (method != LstmMethod::loop && second_ == Second::missing) return "it is not installed";
    method_ = method;
    return "";
  }
  bool lstm_layer_forward(const LstmLayer& layer) override {
    ++layers_;
    if (method_ != LstmMethod::loop && second_ == Second::failing)
      throw ddl::Error(ddl::ErrorCode::unsupported, "it fails");
    if (method_ == LstmMethod::loop || second_ == Second::right) return false;
    if (second_ == Second::undefined) fill(layer.h, NAN);
    return true;
  }
  [[nodiscard]] LstmMethod method() const noexcept { return method_; }
  [[nodiscard]] int layers() const noexcept { return layers_; }

 private:
  void before(const Work&) override {}
  void after(const Work&) override {}
  static void fill(const Tensor& x, float value) {
    for (std::int64_t r = 0; r < x.rows; ++r) std::fill_n(x.as<float>() + r * x.stride, x.cols, value);
  }

  Second second_;
  LstmMethod method_ = LstmMethod::loop;
  int layers_ = 0;
};

struct Chosen {
  LstmMethod method;
  std::string reason;
  int layers;  // that were computed
};

/// Of each rank. `second`: what each rank's backend has.
std::vector<Chosen> choose(const std::vector<TwoMethods::Second>& second, const std::string& saved = "") {
  std::vector<Chosen> chosen(second.size());
  ddl::run_in_process(
      static_cast<int>(second.size()),
      [&](ddl::Context& context) {
        Options options = small_training_options();
        options.device = DeviceKind::cuda;
        const auto rank = static_cast<std::size_t>(context.rank());
        TwoMethods backend(second[rank]);
        SmallTraining training(context, options, backend);
        const LstmChoice choice =
            choose_lstm(context, options, backend, training.model, training.dataset, saved);
        EXPECT_EQ(backend.method(), choice.method);
        chosen[rank] = {choice.method, choice.reason, backend.layers()};
      },
      quiet_ranks());
  return chosen;
}

using enum TwoMethods::Second;

TEST(LstmChoice, IsRankZerosOnAllRanks) {
  const auto chosen = choose({right, right, right});
  for (const Chosen& of_rank : chosen) EXPECT_EQ(of_rank.method, chosen[0].method);
  EXPECT_GT(chosen[0].layers, 0);
  EXPECT_EQ(chosen[1].layers, 0);
  EXPECT_NE(chosen[0].reason.find("cudnn"), std::string::npos) << chosen[0].reason;
}

TEST(LstmChoice, IsNoMethodThatFailsOrHasOtherGradients) {
  for (const auto& [second, reason] :
       {std::pair(wrong, "not taken: its gradients differ"),
        std::pair(undefined, "not taken: there are gradients that are not finite"),
        std::pair(failing, "it fails")}) {
    const auto chosen = choose({second, second});
    for (const Chosen& of_rank : chosen) EXPECT_EQ(of_rank.method, LstmMethod::loop);
    EXPECT_NE(chosen[0].reason.find(reason), std::string::npos) << chosen[0].reason;
  }
}

// A run of f16, whose first scales are found to be too large, would say that cuDNN is wrong.
TEST(LstmChoice, DoesNotDependOnTheLossScale) {
  Options options = small_training_options();
  options.device = DeviceKind::cuda;
  options.dtype = Dtype::mixed;
  options.loss_scaling = LossScaling::constant;
  options.loss_scale = 1e300;
  ddl::run_in_process(
      1,
      [&](ddl::Context& context) {
        TwoMethods backend(right);
        SmallTraining training(context, options, backend);
        const LstmChoice choice =
            choose_lstm(context, options, backend, training.model, training.dataset, "");
        EXPECT_EQ(choice.reason.find("not taken"), std::string::npos) << choice.reason;
        EXPECT_NE(training.model.scale_loss(nullptr), nullptr) << "training needs its scale again";
      },
      quiet_ranks());
}

TEST(LstmChoice, IsNoMethodThatARankIsWithout) {
  for (const auto& second : {std::vector{missing, right}, std::vector{right, missing}}) {
    const auto chosen = choose(second);
    for (const Chosen& of_rank : chosen) {
      EXPECT_EQ(of_rank.method, LstmMethod::loop);
      EXPECT_EQ(of_rank.layers, 0) << "there is nothing to measure";
    }
    EXPECT_NE(chosen[0].reason.find("without cudnn"), std::string::npos) << chosen[0].reason;
  }
}

// A run that goes on from a checkpoint would have other bits than one that never stopped.
TEST(LstmChoice, IsTheCheckpoints) {
  for (const LstmMethod method : {LstmMethod::loop, LstmMethod::cudnn}) {
    for (const Chosen& of_rank : choose({right, right}, std::string(name_of(method)))) {
      EXPECT_EQ(of_rank.method, method);
      EXPECT_EQ(of_rank.layers, 0);
    }
  }
  // Of a machine that had the method.
  EXPECT_EQ(choose({missing}, "cudnn").front().method, LstmMethod::loop);
}

}  // namespace
}  // namespace nmt::test
