// model_gradients OUT_DIR: for each line "NAME FLAGS..." of standard input, makes the model that ddl_nmt
// would make with these flags, fills its parameters with random values of --random_seed, and computes loss
// and gradients of a fixed batch of sentences of unequal lengths. Saves under OUT_DIR/NAME a checkpoint with
// the parameters
// (`model`), the gradients of each backend (`reference` in fp64, `cpu`), and in its state the batch and the
// losses; for torch_parity.py.
#include <fmt/format.h>

#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ddl/checkpoint.hpp"
#include "nmt_example/model_test_support.hpp"
#include "nmt_example/options/options.hpp"
#include "nmt_example/training/setup.hpp"

namespace nmt::test {
namespace {

Corpus corpus_of(const ModelShape& shape) {
  Corpus corpus;
  std::mt19937 random(5);
  const auto words = [&](std::size_t count, std::int64_t vocabulary) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < count; ++i)
      ids.push_back(static_cast<std::int32_t>(3 + random() % static_cast<std::uint32_t>(vocabulary - 3)));
    return ids;
  };
  for (const auto& [source, target] : {std::pair(5, 4), std::pair(1, 0), std::pair(3, 6), std::pair(6, 2)}) {
    corpus.sources.push_back(words(static_cast<std::size_t>(source), shape.source_vocabulary));
    corpus.targets.push_back(words(static_cast<std::size_t>(target), shape.target_vocabulary));
    corpus.samples.push_back(source);
  }
  return corpus;
}

/// Values are random within half of this. Embeddings are so different that attention has a gradient, and a
/// NAS cell hands on little of one unless its weights are large.
double width_of(const ParameterSpec& parameter) {
  const bool large =
      parameter.name.starts_with("embedding/") || parameter.name.find("/nas_") != std::string::npos;
  return large ? 4 : 1.5;
}

/// The parameters' first values and each backend's gradients, as a checkpoint's groups.
struct Tensors {
  std::vector<std::vector<double>> memory;
  std::vector<ddl::NamedTensor> named;

  void add(const ParameterSpec& spec, std::vector<double> values) {
    memory.push_back(std::move(values));
    named.push_back({spec.name,
                     ddl::DataType::f64,
                     {spec.rows, spec.cols},
                     std::as_writable_bytes(std::span(memory.back()))});
  }
};

void compute(ddl::Context& context, const std::string& directory, const Options& options) {
  const auto vocabulary = static_cast<std::size_t>(options.vocab_size);
  const ModelShape shape =
      model_shape(options, vocabulary, options.share_vocab ? vocabulary : vocabulary - 2);
  const Corpus corpus = corpus_of(shape);
  const Batch batch(corpus, 0, corpus.sources.size());
  std::map<std::string, Tensors> groups;
  nlohmann::json state = {
      {"sources", corpus.sources}, {"targets", corpus.targets}, {"label_smoothing", options.label_smoothing}};
  for (const bool reference : {true, false}) {
    const std::string name = reference ? "reference" : "cpu";
    const auto backend = reference ? make_reference_backend() : make_cpu_backend(1);
    Memory memory(*backend);
    Model model(*backend, shape, {8, 8, 8});
    const ParameterLayout& layout = model.parameters().layout();
    std::mt19937 random(static_cast<std::uint32_t>(options.random_seed));
    for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
      const ParameterSpec& spec = layout.parameters[i];
      std::vector<float> values(static_cast<std::size_t>(spec.size()));
      for (float& value : values)
        value = static_cast<float>(spec.constant.value_or(0) +
                                   width_of(spec) * (random() * (1.0 / 4294967296.0) - 0.5));
      backend->upload(model.parameters().value(i), values);
      if (reference) groups["model"].add(spec, {values.begin(), values.end()});
    }
    const Tensor sums = memory.sums(2);
    model.forward_backward(
        model.stage(batch.view, {}), options.label_smoothing, [](std::size_t) {}, sums);
    state["loss"][name] = memory.read(sums)(0, 1);
    for (std::size_t i = 0; i < layout.parameters.size(); ++i)
      groups[name].add(layout.parameters[i], memory.read(model.parameters().gradient(i)).data);
  }
  ddl::CheckpointContents contents;
  for (auto& [name, tensors] : groups) contents.groups[name] = {.whole = tensors.named};
  contents.state = state.dump();
  ddl::Checkpoint(context, directory).save(0, contents);
}

void run(const std::string& out_dir) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    const std::string directory = out_dir + "/" + arguments.at(0);
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    argv.push_back("--describe");  // needs no text
    const Options options = parse_options(static_cast<int>(argv.size()), argv.data()).options;
    ddl::run_in_process(1, [&](ddl::Context& context) { compute(context, directory, options); });
  }
}

}  // namespace
}  // namespace nmt::test

int main(int argc, char** argv) try {
  if (argc != 2) {
    fmt::print(stderr, "usage: model_gradients OUT_DIR < CASES\n");
    return 2;
  }
  nmt::test::run(argv[1]);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "model_gradients: {}\n", error.what());
  return 1;
}
