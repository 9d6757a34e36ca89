#pragma once

#include <numeric>

#include "nmt_example/backend_test_support.hpp"
#include "nmt_example/model/model.hpp"

namespace nmt::test {

/// Sentences, from which batches are cut; each is padded to its longest sentence.
struct Corpus {
  std::vector<std::vector<std::int32_t>> sources, targets;
  std::vector<std::int32_t> samples;
};

struct Batch {
  std::vector<std::int32_t> source, source_lengths, target_in, target_out, target_lengths, samples;
  BatchView view;

  Batch(const Corpus& corpus, std::size_t begin, std::size_t end, std::int32_t padding = 2) {
    const std::size_t sentences = end - begin;
    std::size_t source_steps = 0, target_steps = 0;
    for (std::size_t b = begin; b < end; ++b) {
      source_steps = std::max(source_steps, corpus.sources[b].size());
      target_steps = std::max(target_steps, corpus.targets[b].size() + 1);
      source_lengths.push_back(static_cast<std::int32_t>(corpus.sources[b].size()));
      target_lengths.push_back(static_cast<std::int32_t>(corpus.targets[b].size() + 1));
      samples.push_back(corpus.samples[b]);
    }
    source.assign(source_steps * sentences, padding);
    target_in.assign(target_steps * sentences, padding);
    target_out.assign(target_steps * sentences, padding);
    for (std::size_t b = 0; b < sentences; ++b) {
      const auto& words = corpus.sources[begin + b];
      for (std::size_t t = 0; t < words.size(); ++t) source[t * sentences + b] = words[t];
      const auto& target = corpus.targets[begin + b];
      for (std::size_t t = 0; t <= target.size(); ++t) {
        target_in[t * sentences + b] = t == 0 ? 1 : target[t - 1];
        target_out[t * sentences + b] = t == target.size() ? 2 : target[t];
      }
    }
    view = {static_cast<std::int64_t>(sentences),
            static_cast<std::int64_t>(source_steps),
            static_cast<std::int64_t>(target_steps),
            source,
            source_lengths,
            target_in,
            target_out,
            target_lengths,
            samples};
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
};

struct ModelCase {
  std::string name;
  ModelShape shape;
  double dropout = 0;
  double label_smoothing = 0;
  double output_dropout = 0;
  bool dropout_per_sentence = false;
};

inline void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

inline ModelShape shape_of(std::int64_t units, bool bidirectional, int encoder_layers, int decoder_layers,
                           AttentionKind attention) {
  ModelShape shape;
  shape.source_vocabulary = 11;
  shape.target_vocabulary = 9;
  shape.source_embedding = shape.target_embedding = shape.units = shape.attention_units = units;
  shape.encoder = bidirectional ? EncoderType::bi : EncoderType::uni;
  shape.encoder_layers = encoder_layers;
  shape.decoder_layers = decoder_layers;
  shape.attention = attention;
  return shape;
}

inline ModelCase gnmt_case(const std::string& name, int layers, AttentionKind attention, bool v2) {
  ModelCase c{name, shape_of(4, false, layers, layers, attention), 0.2, 0.1};
  c.shape.encoder = EncoderType::gnmt;
  c.shape.architecture = v2 ? AttentionArchitecture::gnmt_v2 : AttentionArchitecture::gnmt;
  return c;
}

inline std::vector<ModelCase> model_cases() {
  using enum AttentionKind;
  std::vector<ModelCase> cases = {
      {"Uni1", shape_of(5, false, 1, 1, none)},
      {"Uni3DropoutSmoothing", shape_of(5, false, 3, 3, none), 0.3, 0.1},
      {"Uni4", shape_of(4, false, 4, 4, none)},
      {"Bi2", shape_of(5, true, 2, 2, none)},
      {"Bi4Dropout", shape_of(4, true, 4, 4, none), 0.3},
      {"Uni1Luong", shape_of(5, false, 1, 1, luong)},
      {"Uni2ScaledLuongDropout", shape_of(6, false, 2, 2, scaled_luong), 0.3},
      {"Bi2ScaledLuong", shape_of(5, true, 2, 2, scaled_luong)},
      {"Bi2LuongDropoutSmoothing", shape_of(7, true, 2, 2, luong), 0.3, 0.1},
      {"Bi4ScaledLuongDropoutSmoothing", shape_of(8, true, 4, 4, scaled_luong), 0.2, 0.1},
      {"Bi2Decoder1ScaledLuong", shape_of(5, true, 2, 1, scaled_luong), 0.3},
  };
  ModelCase shared{"SharedVocabularyUni2Dropout", shape_of(5, false, 2, 2, none), 0.3, 0.1};
  shared.shape.share_vocabulary = true;
  shared.shape.target_vocabulary = shared.shape.source_vocabulary;
  cases.push_back(shared);
  shared.name = "SharedVocabularyBi2ScaledLuong";
  shared.shape.encoder = EncoderType::bi;
  shared.shape.attention = scaled_luong;
  cases.push_back(shared);
  ModelCase state{"NoStatePassedBi2Luong", shape_of(5, true, 2, 2, luong), 0.2};
  state.shape.pass_hidden_state = false;
  state.shape.forget_bias = 0.25;
  cases.push_back(state);
  ModelCase output{"CellOutputBi2ScaledLuong", shape_of(5, true, 2, 2, scaled_luong), 0.2};
  output.shape.output_attention = false;
  cases.push_back(output);
  for (const UnitType unit : {UnitType::gru, UnitType::layer_norm_lstm, UnitType::nas}) {
    const std::string name(name_of(unit));
    ModelCase bi{"Bi2ScaledLuong_" + name, shape_of(5, true, 2, 2, scaled_luong), 0.2};
    ModelCase plain{"Uni2_" + name, shape_of(4, false, 2, 2, none), 0.3, 0.1};
    ModelCase gnmt =
        gnmt_case("GnmtNormedBahdanau_" + name, unit == UnitType::nas ? 2 : 3, normed_bahdanau, true);
    for (ModelCase* c : {&bi, &plain, &gnmt}) {
      c->shape.unit = unit;
      cases.push_back(*c);
    }
  }
  cases.push_back({"Bi2Bahdanau", shape_of(5, true, 2, 2, bahdanau), 0.2});
  cases.push_back({"Uni2NormedBahdanau", shape_of(6, false, 2, 2, normed_bahdanau), 0.3, 0.1});
  cases.push_back(gnmt_case("Gnmt2Luong", 2, luong, false));
  cases.push_back(gnmt_case("Gnmt4ScaledLuong", 4, scaled_luong, false));
  cases.push_back(gnmt_case("Gnmt4BahdanauV2", 4, bahdanau, true));
  cases.push_back(gnmt_case("Gnmt1LuongV2OfUni", 1, luong, true));
  cases.back().shape.encoder = EncoderType::uni;
  cases.push_back(gnmt_case("GnmtOfBi", 2, normed_bahdanau, false));
  cases.back().shape.encoder = EncoderType::bi;
  cases.push_back(gnmt_case("GnmtEncoderAlone", 3, none, false));
  cases.push_back(gnmt_case("GnmtEncoderStandard", 3, luong, false));
  cases.back().shape.architecture = AttentionArchitecture::standard;
  cases.push_back(gnmt_case("Gnmt3Decoder4LuongV2", 3, luong, true));
  cases.back().shape.decoder_layers = 4;
  cases.back().shape.pass_hidden_state = false;
  for (const ModelCase& c : {ModelCase{"ResidualUni3", shape_of(5, false, 3, 3, none), 0.3},
                             ModelCase{"ResidualUni4", shape_of(5, false, 4, 4, none)},
                             ModelCase{"ResidualBi6Luong", shape_of(4, true, 6, 6, luong), 0.2},
                             ModelCase{"ResidualBi4Decoder3Luong", shape_of(4, true, 4, 3, luong), 0.2},
                             gnmt_case("ResidualGnmt4Luong", 4, luong, false),
                             gnmt_case("ResidualGnmt4BahdanauV2", 4, bahdanau, true)}) {
    cases.push_back(c);
    cases.back().shape.residual = true;
  }
  for (ModelCase c : {ModelCase{"OutputDropoutBi2Luong", shape_of(5, true, 2, 2, luong), 0.2, 0.1, 0.4, true},
                      ModelCase{"OutputDropoutUni2", shape_of(5, false, 2, 2, none), 0, 0, 0.4},
                      ModelCase{"PerSentenceUni2", shape_of(5, false, 2, 2, none), 0.3, 0, 0, true}}) {
    c.shape.drops_output = c.output_dropout > 0;
    cases.push_back(c);
  }
  ModelCase dropped_gnmt = gnmt_case("OutputDropoutGnmt3LuongV2", 3, luong, true);
  dropped_gnmt.output_dropout = 0.4;
  dropped_gnmt.dropout_per_sentence = dropped_gnmt.shape.drops_output = true;
  cases.push_back(dropped_gnmt);
  ModelCase tied{"TiedUni2Luong", shape_of(5, false, 2, 2, luong), 0.2, 0.1};
  tied.shape.tie_output = true;
  cases.push_back(tied);
  tied.name = "TiedSharedBi2";
  tied.shape = shared.shape;
  tied.shape.attention = none;
  tied.shape.tie_output = true;
  cases.push_back(tied);
  cases.push_back(gnmt_case("NvidiaGnmt4", 4, normed_bahdanau, true));
  cases.back().shape.residual = cases.back().shape.output_bias = true;
  cases.back().shape.feed_context = cases.back().shape.pass_hidden_state = false;
  cases.push_back(gnmt_case("UnfedGnmt2Luong", 2, luong, false));
  cases.back().shape.encoder = EncoderType::uni;
  cases.back().shape.feed_context = false;
  cases.push_back(gnmt_case("UnfedGnmt3Luong", 3, luong, false));
  cases.back().shape.feed_context = false;
  for (const UnitType unit : {UnitType::lstm, UnitType::gru}) {
    ModelCase language{"LanguageModel_" + std::string(name_of(unit)), shape_of(5, false, 2, 2, none), 0.2};
    language.shape.language_model = true;
    language.shape.unit = unit;
    language.shape.residual = unit == UnitType::gru;
    cases.push_back(language);
  }
  ModelCase sizes{"FourSizesUni2Luong", shape_of(5, false, 2, 2, luong), 0.2};
  sizes.shape.source_embedding = 3;
  sizes.shape.target_embedding = 6;
  sizes.shape.attention_units = 7;
  cases.push_back(sizes);
  sizes.name = "FourSizesCellOutput";
  sizes.shape.output_attention = false;
  cases.push_back(sizes);
  sizes.name = "TwoSizesUni2";
  sizes.shape = shape_of(5, false, 2, 2, none);
  sizes.shape.source_embedding = 6;
  cases.push_back(sizes);
  ModelCase sampled{"SampledUni2Luong", shape_of(5, false, 2, 2, luong), 0.2};
  sampled.shape.sampled_words = 4;
  cases.push_back(sampled);
  sampled.name = "SampledTiedUni2";
  sampled.shape = shape_of(5, false, 2, 2, none);
  sampled.shape.sampled_words = 3;
  sampled.shape.tie_output = sampled.shape.output_bias = true;
  cases.push_back(sampled);
  return cases;
}

/// Steps of a search with more rows and with less; `hears` gets the best words of each.
template <typename F>
void search_some_steps(SearchModel& search, std::int64_t sentences, std::int64_t beam, F hears) {
  Random random(static_cast<std::uint32_t>(beam));
  std::vector<std::int32_t> parents(static_cast<std::size_t>(sentences)), words(parents.size(), 1);
  std::iota(parents.begin(), parents.end(), 0);
  for (const double part : {1.0, 1.0, 0.9, 0.9, 0.5, 0.2, 0.2}) {
    search.step(parents, words);
    hears(search.best_words(2));
    const auto rows = static_cast<std::int64_t>(std::ceil(part * static_cast<double>(sentences * beam)));
    words = random.integers(rows, 3, 8);
    parents = random.integers(rows, 0, static_cast<std::int32_t>(parents.size()) - 1);
  }
}

inline Corpus small_corpus() {
  return {{{3, 7, 10}, {5}, {4, 3}, {9, 6, 0}}, {{3, 5}, {8, 3, 4}, {}, {6}}, {5, 0, 1'000'000'007, 12}};
}

inline BatchLimits small_limits() { return {4, 3, 4}; }

/// A model whose parameters, including biases, are random numbers that are exact in fp32.
class TestModel {
 public:
  TestModel(std::shared_ptr<Backend> backend, const ModelShape& shape, const BatchLimits& limits,
            double weight = 0.8, const ModelTypes& types = {})
      : backend_(std::move(backend)), memory_(*backend_), model_(*backend_, shape, limits, nullptr, types) {
    Random random(31);
    for (std::size_t i = 0; i < model_.parameters().count(); ++i) {
      const Tensor value = model_.parameters().value(i);
      const double offset = name(i) == "attention/scale" || name(i) == "attention/g" ? 1.5
                            : name(i).ends_with("/gain")                             ? 1.0
                                                                                     : 0.0;
      memory_.write(value, random.values(value.rows, value.cols, offset - weight, offset + weight));
    }
  }

  Model* operator->() { return &model_; }
  Model& model() { return model_; }
  Memory& memory() { return memory_; }
  std::size_t count() { return model_.parameters().count(); }
  const std::string& name(std::size_t i) { return model_.parameters().layout().parameters[i].name; }

  BatchLoss run(const BatchView& batch, const ModelCase& c) {
    return run(batch, c, [](std::size_t) {});
  }
  BatchLoss run(const BatchView& batch, const ModelCase& c, const ReadyFunction& ready) {
    backend_->zero(sums_);
    const StagedBatch staged =
        model_.stage(batch, {c.dropout, 3, 17, c.output_dropout, c.dropout_per_sentence});
    model_.forward_backward(staged, c.label_smoothing, ready, sums_);
    const Values values = memory_.read(sums_);
    return {values(0, 0), values(0, 1),
            std::accumulate(batch.target_lengths.begin(), batch.target_lengths.end(), std::int64_t{0})};
  }
  std::vector<Values> gradients() {
    std::vector<Values> result;
    for (std::size_t i = 0; i < count(); ++i) result.push_back(memory_.read(model_.parameters().gradient(i)));
    return result;
  }

 private:
  std::shared_ptr<Backend> backend_;
  Memory memory_;
  Model model_;
  Tensor sums_ = memory_.sums(2);
};

}  // namespace nmt::test
