// The optimisers' arithmetic on every backend, compared with other implementations' stored results
// (optimizer_goldens.py). Otherwise training would follow another rule than the command line names.

#include "nmt_example/training/optimizer.hpp"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ddl/context.hpp"
#include "nmt_example/backend/wrapped_backend.hpp"
#include "nmt_example/backend_test_support.hpp"
#include "nmt_example/options/flag_table.hpp"

namespace nmt::test {
namespace {

class Update : public testing::TestWithParam<BackendCase> {
 protected:
  double roundoff() const { return backend_->type() == ddl::DataType::f64 ? 0x1p-53 : fp32_roundoff; }

  /// Runs the operation on the backend and on the reference. An output may differ by `error` relative to each
  /// element, and by `floor`.
  template <typename Operation>
  void expect_reference(Operation operation, double error, double floor = 0) {
    const auto reference = make_reference_backend();
    Memory reference_memory(*reference, Layout::contiguous);
    const std::vector<Values> found = operation(memory_), expected = operation(reference_memory);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Values bound = expected[i].map([&](double x) { return error * std::abs(x) + floor; });
      EXPECT_TRUE(close(found[i], expected[i], bound)) << "output " << i;
    }
  }

  std::unique_ptr<Backend> backend_ = make_or_skip(GetParam());
  Memory memory_{*backend_, Layout::contiguous};
  Random random_{23};
};

std::vector<float> floats_of(const nlohmann::json& values) { return values.get<std::vector<float>>(); }

nlohmann::json golden_results() {
  std::ifstream file(DDL_GOLDEN_DIR "/optimizers.json");
  return nlohmann::json::parse(file);
}

/// The stored problem with one of its optimisers on a backend, and with some ranks, one of these.
class StoredProblem {
 public:
  StoredProblem(Backend& backend, const nlohmann::json& golden, const nlohmann::json& wanted, bool sharded)
      : backend_(backend),
        golden_(golden),
        wanted_(wanted),
        options_(options_of(wanted, sharded)),
        parameters(backend, layout_of(golden),
                   backend.allocate(static_cast<std::size_t>(layout_of(golden).extent) * sizeof(double))),
        optimizer(backend, parameters, options_) {
    for (std::size_t i = 0; i < parameters.count(); ++i)
      backend.upload(parameters.value(i), floats_of(golden["parameters"][i]["start"]));
  }

  /// `before` is called before each step.
  void run(const std::function<void()>& before = [] {}) {
    const std::vector<double> rates = golden_["rates"];
    for (std::size_t step = 0; step < rates.size(); ++step) {
      before();
      for (std::size_t i = 0; i < parameters.count(); ++i)
        backend_.upload(parameters.gradient(i), floats_of(golden_["parameters"][i]["gradients"][step]));
      update(step_factors(golden_["gradient_scale"], rates[step], options_.adam_beta1, options_.adam_beta2,
                          static_cast<std::int64_t>(step) + 1));
    }
  }

  /// A step whose gradients are not finite.
  void leave_out() {
    for (std::size_t i = 0; i < parameters.count(); ++i) {
      const auto size = static_cast<std::size_t>(parameters.layout().parameters[i].size());
      backend_.upload(parameters.gradient(i),
                      std::vector<float>(size, std::numeric_limits<float>::quiet_NaN()));
    }
    StepFactors factors;
    factors.takes = false;
    update(factors);
  }

  /// Compares `count` elements of a parameter from `first` on.
  void expect_result(std::size_t i, std::size_t first, std::size_t count) {
    const std::string& name = parameters.layout().parameters[i].name;
    const std::vector<double> all = wanted_["result"][name];
    Values expected(1, static_cast<std::int64_t>(count));
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), count, expected.data.begin());
    Values found = expected;
    const Tensor value = parameters.value(i);
    backend_.download(value.reshaped(1, value.size())
                          .col_range(static_cast<std::int64_t>(first), static_cast<std::int64_t>(count)),
                      std::span<double>(found.data));
    // NovoGrad's moving means of norms are fp32 on every backend, as checkpoints are.
    const bool is_double =
        backend_.type() == ddl::DataType::f64 && options_.optimizer != OptimizerKind::novograd;
    const double error = 100 * (is_double ? 0x1p-53 : fp32_roundoff) * (1 + expected.largest());
    EXPECT_TRUE(close(found, expected, error)) << name;
  }

 private:
  void update(const StepFactors& factors) {
    backend_.upload_bytes(factors_.get(), std::as_bytes(std::span(&factors, 1)));
    optimizer.update(static_cast<const StepFactors*>(factors_.get()));
  }

  static ParameterLayout layout_of(const nlohmann::json& golden) {
    ParameterLayout layout;
    for (const auto& parameter : golden["parameters"])
      layout.declare(parameter["name"], parameter["rows"], parameter["cols"]);
    return layout;
  }
  static Options options_of(const nlohmann::json& wanted, bool sharded) {
    Options options;
    for (const auto& [name, value] : wanted["flags"].items())
      assign(*find_flag(name), value.get<std::string>(), options);
    options.sharded_update = sharded;
    return options;
  }

  Backend& backend_;
  const nlohmann::json& golden_;
  const nlohmann::json& wanted_;
  Options options_;
  std::shared_ptr<void> factors_ = backend_.allocate(sizeof(StepFactors));

 public:
  ParameterSet parameters;
  Optimizer optimizer;
};

TEST_P(Update, OptimizersGiveTheResultsOfOtherImplementations) {
  const nlohmann::json golden = golden_results();
  for (const auto& wanted : golden["optimizers"]) {
    SCOPED_TRACE(wanted["flags"].dump());
    StoredProblem problem(*backend_, golden, wanted, false);
    problem.run();
    const ParameterLayout& layout = problem.parameters.layout();
    for (std::size_t i = 0; i < layout.parameters.size(); ++i)
      problem.expect_result(i, 0, static_cast<std::size_t>(layout.parameters[i].size()));
    EXPECT_TRUE(close(memory_.read(problem.parameters.gradients()), Values(1, layout.extent), 0))
        << "gradients must be zero afterwards";
  }
}

// A step of mixed precision that overflows would spoil moments, norms or the next gradients.
TEST_P(Update, StepsThatAreLeftOutChangeNothing) {
  const nlohmann::json golden = golden_results();
  for (const auto& wanted : golden["optimizers"]) {
    SCOPED_TRACE(wanted["flags"].dump());
    StoredProblem problem(*backend_, golden, wanted, false);
    const ParameterLayout& layout = problem.parameters.layout();
    problem.run([&] {
      problem.leave_out();
      EXPECT_TRUE(close(memory_.read(problem.parameters.gradients()), Values(1, layout.extent), 0))
          << "gradients must be zero afterwards";
    });
    for (std::size_t i = 0; i < layout.parameters.size(); ++i)
      problem.expect_result(i, 0, static_cast<std::size_t>(layout.parameters[i].size()));
  }
}

/// Counts copies to the host, and passes over parameters.
class CountingBackend final : public WrappedBackend {
 public:
  CountingBackend() : WrappedBackend(make_cpu_backend(1)) {}
  int downloads = 0, updates = 0;

 private:
  void before(const Work& work) override {
    downloads += work.operation == "download" ? 1 : 0;
    updates += work.operation == "update" ? 1 : 0;
  }
  void after(const Work&) override {}
};

// The host would wait for its device in every step, and the device then for the next work; or it would launch
// kernels for each parameter.
TEST(Optimizers, CopyNothingToTheHostAndTakeAllParametersAtOnce) {
  const nlohmann::json golden = golden_results();
  for (const auto& wanted : golden["optimizers"]) {
    SCOPED_TRACE(wanted["flags"].dump());
    CountingBackend backend;
    StoredProblem problem(backend, golden, wanted, false);
    problem.run();
    EXPECT_EQ(backend.downloads, 0);
    EXPECT_LE(backend.updates, 2 * static_cast<int>(golden["rates"].size()));
  }
}

// Norms would be of a rank's part, or count what belongs to all ranks several times.
TEST(ShardedUpdate, GivesTheSameResults) {
  const nlohmann::json golden = golden_results();
  for (const auto& wanted : golden["optimizers"]) {
    ddl::run_in_process(3, [&](ddl::Context& context) {
      SCOPED_TRACE(wanted["flags"].dump());
      const auto backend = make_reference_backend();
      StoredProblem problem(*backend, golden, wanted, true);
      const auto rank = static_cast<std::size_t>(context.rank());
      std::vector<ddl::GradientPiece> pieces;
      for (std::size_t i = 0; i < problem.parameters.count(); ++i) {
        const auto size = static_cast<std::size_t>(problem.parameters.layout().parameters[i].size());
        pieces.push_back({i, rank * (size / 3), size / 3});
        if (size % 3 != 0) pieces.push_back({i, size / 3 * 3, size % 3});
      }
      problem.optimizer.take(pieces, [&](const Tensor& sums) {
        context.communicator().all_reduce(
            std::span(sums.as<double>(), static_cast<std::size_t>(sums.size())));
      });
      EXPECT_FALSE(problem.optimizer.is_whole());
      problem.run();
      for (const ddl::GradientPiece& piece : pieces)
        problem.expect_result(piece.gradient, piece.first, piece.count);
    });
  }
}

// One rank, whose buckets divide a parameter, would save a part of its moments as the whole.
TEST(ShardedUpdate, HasAParametersStateInOnePieceIfItHasAllBuckets) {
  const nlohmann::json golden = golden_results();
  for (const auto& wanted : golden["optimizers"]) {
    SCOPED_TRACE(wanted["flags"].dump());
    const auto backend = make_reference_backend();
    StoredProblem problem(*backend, golden, wanted, true);
    std::vector<ddl::GradientPiece> pieces;
    const auto& parameters = problem.parameters.layout().parameters;
    for (std::size_t i = parameters.size(); i-- > 0;) {
      const auto size = static_cast<std::size_t>(parameters[i].size()), first = size - size / 3;
      pieces.push_back({i, first, size - first});
      pieces.push_back({i, 0, first});
    }
    problem.optimizer.take(pieces, [](const Tensor&) {});
    EXPECT_TRUE(problem.optimizer.is_whole());
    problem.run();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      problem.expect_result(i, 0, static_cast<std::size_t>(parameters[i].size()));
    for (const Optimizer::State& state : problem.optimizer.state()) {
      EXPECT_EQ(state.first, 0) << state.name;
      EXPECT_EQ(state.value.size(), state.rows * state.cols) << state.name;
    }
  }
}

// The scale would be applied twice or never, or a step would read memory beyond an odd size.
TEST_P(Update, SgdStepsAgainstTheScaledGradient) {
  for (const std::int64_t cols : {1, 3, 17, 64, 129, 5000, 100'003}) {
    const Values p = random_.values(1, cols);
    const Values g = random_.values(1, cols, -10, 10);
    const Tensor parameters = memory_.tensor(p);
    const Tensor gradients = memory_.tensor(g);
    memory_->update(UpdateRule::sgd, {parameters, gradients, {}, {}},
                    {.learning_rate = 0.3, .gradient_scale = 0.125});
    Values expected = p, bound = p;
    for (std::size_t i = 0; i < p.data.size(); ++i) {
      const double change = 0.3 * 0.125 * g.data[i];
      expected.data[i] = p.data[i] - change;
      bound.data[i] = 4 * roundoff() * (std::abs(p.data[i]) + std::abs(change));
    }
    EXPECT_TRUE(close(memory_.read(parameters), expected, bound));
    EXPECT_TRUE(close(memory_.read(gradients), g, 0)) << "the gradients changed";
  }
}

std::vector<double> numbers_of(const StepFactors& factors) {
  return {factors.gradient_scale,
          factors.learning_rate,
          factors.correction1,
          factors.correction2,
          static_cast<double>(factors.step),
          static_cast<double>(factors.takes),
          factors.decay_scale};
}

/// Factors of other steps for every layer, some of which are not taken.
std::vector<Layer> layers_with_factors(std::size_t count) {
  std::vector<Layer> layers(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(i % 13);
    layers[i].factors =
        step_factors(0.3 + x, 0.01 * (1 + x), 0.9, 0.99, 1 + static_cast<std::int64_t>(i % 5));
    layers[i].factors.takes = i % 11 != 5;
    layers[i].factors.decay_scale = 1 + x / 4;
  }
  return layers;
}

/// Many small layers and some large ones, with elements between them, and each third layer in two shards. Of
/// the large ones, one is aligned with its moments and the other is not.
std::vector<UpdateRange> ranges_of_layers(std::int32_t layers) {
  std::vector<UpdateRange> ranges;
  UpdateRange next;
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    next.count = layer == 60 ? 30'001 : layer == 90 ? 9'003 : 1 + layer % 7;
    next.first += layer % 3;
    if (layer == 60) next.first = aligned_stride(next.first), next.moment = aligned_stride(next.moment);
    next.layer = layer;
    next.decays = layer % 4 != 0;
    for (int shard = 0; shard < (layer % 3 == 0 ? 2 : 1); ++shard) {
      next.sums_share = shard == 0 ? 1 : 0.25;
      ranges.push_back(next);
      next.first += next.count + 1;
      next.moment += next.count;
    }
  }
  return ranges;
}

// Layers would take each other's steps, decay or norms, or elements of other ranks would change.
TEST_P(Update, RangesOfManyLayers) {
  constexpr std::int32_t layers = 130;
  const std::vector<UpdateRange> ranges = ranges_of_layers(layers);
  const std::int64_t n = ranges.back().first + ranges.back().count + 5;
  const std::int64_t moments = ranges.back().moment + ranges.back().count + 5;
  const std::vector<Layer> factors = layers_with_factors(layers);
  const Values x = random_.values(1, n), gradients = random_.values(1, n);
  const Values m = random_.values(1, moments), v = random_.values(1, moments, 0.1, 1);
  for (const UpdateRule rule :
       {UpdateRule::norms, UpdateRule::sgd, UpdateRule::momentum, UpdateRule::nesterov, UpdateRule::adam,
        UpdateRule::lamb_moments, UpdateRule::lamb_step})
    for (const bool zero : {false, true})
      for (const bool by_layer : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rule " << static_cast<int>(rule) << (zero ? ", zeroes" : "")
                                        << (by_layer ? ", steps of layers" : ""));
        const auto operation = [&](Memory& memory) {
          const std::shared_ptr<void> of_layers = memory->allocate(factors.size() * sizeof(Layer));
          memory->upload_bytes(of_layers.get(), std::as_bytes(std::span(factors)));
          const UpdateTensors tensors{.values = memory.tensor(x),
                                      .gradients = memory.tensor(gradients),
                                      .m = memory.tensor(m),
                                      .v = memory.tensor(v),
                                      .sums = memory.sums(2 * layers).reshaped(layers, 2)};
          memory->update(rule, tensors,
                         {.layers = by_layer ? static_cast<const Layer*>(of_layers.get()) : nullptr,
                          .learning_rate = 0.1,
                          .gradient_scale = 0.3,
                          .weight_decay = 0.5,
                          .beta1 = 0.9,
                          .beta2 = 0.99,
                          .epsilon = 1e-6,
                          .step = 3,
                          .zero_gradients = zero},
                         ranges);
          std::vector<Values> outputs;
          for (const Tensor& output : {tensors.values, tensors.gradients, tensors.m, tensors.v, tensors.sums})
            outputs.push_back(memory.read(output));
          return outputs;
        };
        expect_reference(operation, 32 * fp32_roundoff, 32 * fp32_roundoff);
      }
}

// A layer would move too far, or not at all.
TEST_P(Update, LayersAreScaledAsOnTheReference) {
  constexpr std::size_t count = 300;
  std::vector<Layer> layers = layers_with_factors(count);
  for (std::size_t i = 0; i < count; ++i) layers[i].decays = i % 3 != 0;
  for (const LayerRule rule : {LayerRule::lamb, LayerRule::novograd, LayerRule::larc}) {
    SCOPED_TRACE(static_cast<int>(rule));
    const LayerScaling scaling{
        .rule = rule, .weight_decay = 0.01, .beta2 = 0.9, .epsilon = 1e-3, .larc_eta = 0.02};
    std::vector<std::vector<float>> squares;
    for (int step = 0; step < 4; ++step) {
      const Values numbers = random_.values(1, 2 * count, 0, 100);
      squares.emplace_back(numbers.data.begin(), numbers.data.end());
      for (std::size_t i = 0; i < squares.back().size(); i += 7) squares.back()[i] = 0;
    }
    const auto operation = [&](Memory& memory) {
      const auto of_layers = memory->allocate(count * sizeof(Layer));
      const auto of_step = memory->allocate(sizeof(StepFactors));
      const auto second_moments = memory->allocate(count * sizeof(float));
      memory->upload_bytes(of_layers.get(), std::as_bytes(std::span(layers)));
      std::vector<Values> outputs;
      for (std::size_t step = 0; step < squares.size(); ++step) {
        const StepFactors& factors = layers[step + 3].factors;  // the third is not taken
        memory->upload_bytes(of_step.get(), std::as_bytes(std::span(&factors, 1)));
        memory->scale_layers(
            scaling, static_cast<const StepFactors*>(of_step.get()),
            memory.sums(squares[step]).reshaped(count, 2),
            rule == LayerRule::novograd ? static_cast<float*>(second_moments.get()) : nullptr,
            static_cast<Layer*>(of_layers.get()));
        std::vector<Layer> found(count);
        memory->download_bytes(of_layers.get(), std::as_writable_bytes(std::span(found)));
        std::vector<float> moments(count);
        memory->download_bytes(second_moments.get(), std::as_writable_bytes(std::span(moments)));
        Values& output = outputs.emplace_back(count, 9);
        for (std::size_t i = 0; i < count; ++i) {
          std::vector<double> row = numbers_of(found[i].factors);
          row.insert(row.end(), {static_cast<double>(found[i].decays), static_cast<double>(moments[i])});
          std::ranges::copy(row, output.data.begin() + static_cast<std::ptrdiff_t>(9 * i));
        }
      }
      return outputs;
    };
    // Second moments are fp32.
    expect_reference(operation, rule == LayerRule::novograd ? 4 * fp32_roundoff : 1e-12);
  }
}

/// A step's reduction, which is not finite if its norm is negative, and its largest gradient.
struct Reduced {
  double norm, magnitude;
};

/// All that `end_step` can meet.
std::vector<Reduced> steps_to_end() {
  std::vector<Reduced> steps = {{3, 0.25}, {70, 5}, {-1, 0}, {4, 0.5}, {0, 0}};
  for (int i = 0; i < 8; ++i) steps.push_back({1.0 + i, 0.125 * (i + 1)});
  steps.insert(steps.end(), {{-1, 0}, {-1, 0}, {2, 0.75}});
  steps.insert(steps.end(), most_left_out + 1, {-1, 0});
  steps.push_back({1, 1});
  return steps;
}

// A device would take, scale or leave out other steps than the host.
TEST_P(Update, StepsEndAsOnTheReference) {
  struct Step {
    StepState state;
    StepRecord record;
    ddl::DeviceOutcome reduced;
    double loss_sum, magnitude;
    std::array<double, 32> rates;
  };
  const std::vector<Reduced> steps = steps_to_end();
  for (const LossScaling rule :
       {LossScaling::off, LossScaling::constant, LossScaling::backoff, LossScaling::log_max})
    for (const bool per_sentence : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(rule) << (per_sentence ? ", per sentence" : ""));
      std::set<StepEnd> ends;
      const auto operation = [&](Memory& memory) {
        const std::shared_ptr<void> owned = memory->allocate(sizeof(Step));
        auto* const on_device = static_cast<Step*>(owned.get());
        Step step{};
        step.state.loss_scale = {.rule = rule, .largest = 1024, .window = 3, .value = 512};
        for (std::size_t i = 0; i < step.rates.size(); ++i) step.rates[i] = 0.1 + static_cast<double>(i);
        Values output(static_cast<std::int64_t>(steps.size()), 23);
        for (std::size_t i = 0; i < steps.size(); ++i) {
          const auto& [norm, magnitude] = steps[i];
          step.reduced = {24, 0.5, std::abs(norm), norm < 0 ? 0U : 1U};
          step.loss_sum = 3 + static_cast<double>(i);
          step.magnitude = magnitude;
          memory->upload_bytes(on_device, std::as_bytes(std::span(&step, 1)));
          memory->end_step(
              {.max_gradient_norm = 0.01, .beta1 = 0.9, .beta2 = 0.99, .loss_per_sentence = per_sentence},
              {.sentences = 7,
               .learning_rates = on_device->rates.data(),
               .first = 0,
               .reduced = &on_device->reduced,
               .loss_sum = &on_device->loss_sum,
               .magnitude = &on_device->magnitude},
              &on_device->state, &on_device->record);
          memory->download_bytes(on_device, std::as_writable_bytes(std::span(&step, 1)));
          const StepRecord& record = step.record;
          const LossScale& scale = step.state.loss_scale;
          ends.insert(record.end);
          std::vector<double> row = numbers_of(step.state.factors);
          row.insert(
              row.end(),
              {static_cast<double>(record.end), static_cast<double>(record.done), record.loss_sum,
               record.weight, record.norm, record.learning_rate, record.loss_scale, record.next_loss_scale,
               scale.value, static_cast<double>(scale.step), static_cast<double>(scale.last_overflow),
               scale.mean, scale.mean_square, static_cast<double>(step.state.done),
               static_cast<double>(step.state.left_out), static_cast<double>(step.state.halted)});
          std::ranges::copy(row, output.data.begin() + output.cols * static_cast<std::ptrdiff_t>(i));
        }
        return std::vector<Values>{output};
      };
      // The deviation of equal numbers, which is that of their roundings, is the root of a difference.
      expect_reference(operation, 1e-6);
      EXPECT_EQ(ends.size(), rule == LossScaling::off ? 3U : 4U) << "an outcome is not tested";
    }
}

// Gradients that are large only where few look would overflow in 16 bits.
TEST_P(Update, LargestMagnitude) {
  for (const ddl::DataType type : {backend_->type(), backend_->narrow_type()})
    for (const std::int64_t cols : {0, 1, 3, 64, 4097, 300'003})
      for (const double extreme : {-7.5, 7.5})
        for (const std::int64_t place : {std::int64_t{0}, cols / 2, cols - 1}) {
          Values x = random_.values(1, cols);
          if (cols > 0) x(0, std::max<std::int64_t>(place, 0)) = extreme;
          const Tensor result = memory_.sums(1);
          backend_->largest_magnitude(memory_.tensor(x, Layout::contiguous, type), result);
          EXPECT_EQ(memory_.read(result)(0, 0), cols > 0 ? 7.5 : 0) << cols << " elements, at " << place;
        }
}

TEST_P(Update, SumsOfSquaresAreAccumulatedInFp64) {
  const Tensor sums = memory_.sums(2);
  const auto norms = [&](const Values& values, const Values& gradients) {
    memory_->zero(sums);
    memory_->update(UpdateRule::norms, {memory_.tensor(values), memory_.tensor(gradients), {}, {}, sums}, {});
    return memory_.read(sums);
  };
  for (const std::int64_t cols : {1, 3, 17, 64, 129, 16'385, 100'003}) {
    const Values x = random_.values(1, cols, -100, 100), y = random_.values(1, cols, -1, 1);
    const Values found = norms(x, y);
    EXPECT_NEAR(found(0, 0), dot(x, x), 1e-12 * dot(x, x)) << cols;
    EXPECT_NEAR(found(0, 1), dot(y, y), 1e-12 * dot(y, y)) << cols;
  }
  // In fp32, 1 is lost when added to 2^26, as each of these would be.
  Values x(1, 4097, 1);
  x(0, 0) = 8192;
  EXPECT_EQ(norms(x, x)(0, 1), 67108864.0 + 4096.0);
  const UpdateRange half{.count = x.cols, .sums_share = 0.5};
  memory_->update(UpdateRule::norms, {memory_.tensor(x), memory_.tensor(x), {}, {}, sums}, {},
                  std::span(&half, 1));
  EXPECT_EQ(memory_.read(sums)(0, 1), 1.5 * (67108864.0 + 4096.0)) << "a share is added";
  EXPECT_EQ(norms(Values(1, 0), Values(1, 0))(0, 0), 0.0);
  for (const std::int64_t place : {0, 7, 128}) {
    Values y(1, 129, 1);
    y(0, place) = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(norms(Values(1, 129), y)(0, 1))) << place;
  }
}

// A rank's parameters would depend on its number of threads, and ranks would drift apart.
TEST(CpuUpdate, BitsDoNotDependOnThreads) {
  const auto run = [](UpdateRule rule, int threads) {
    const auto backend = make_cpu_backend(threads);
    Memory memory(*backend, Layout::contiguous);
    Random random(3);
    const auto tensor = [&](double least) { return memory.tensor(random.values(1, 200'003, least, 1)); };
    const UpdateTensors tensors{tensor(-1), tensor(-1), tensor(-1), tensor(0), memory.sums(2)};
    backend->update(rule, tensors,
                    {.learning_rate = 0.1,
                     .gradient_scale = 0.3,
                     .weight_decay = 0.01,
                     .beta1 = 0.9,
                     .beta2 = 0.99,
                     .epsilon = 1e-6});
    std::vector<double> bits;
    for (const Tensor& x : {tensors.values, tensors.m, tensors.v, tensors.sums}) {
      const Values values = memory.read(x);
      bits.insert(bits.end(), values.data.begin(), values.data.end());
    }
    return bits;
  };
  for (const UpdateRule rule :
       {UpdateRule::norms, UpdateRule::sgd, UpdateRule::momentum, UpdateRule::nesterov, UpdateRule::adam,
        UpdateRule::lamb_moments, UpdateRule::lamb_step}) {
    const std::vector<double> expected = run(rule, 1);
    for (const int threads : {2, 3, 5}) EXPECT_TRUE(run(rule, threads) == expected) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Update, testing::ValuesIn(backends_under_test()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nmt::test
