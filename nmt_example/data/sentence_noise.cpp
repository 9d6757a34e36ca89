#include "nmt_example/data/sentence_noise.hpp"

#include <algorithm>

namespace nmt {
namespace {

// Sites beyond those of the model's dropouts.
constexpr std::uint32_t source_split_site = 0x1000, target_split_site = 0x1001;
constexpr std::uint32_t source_words_site = 0x1002, target_words_site = 0x1003;

void drop_words(std::span<std::int32_t> ids, const Batch& batch, std::span<const std::int32_t> lengths,
                std::int32_t first, double rate, const PhiloxKey& key) {
  const std::uint32_t threshold = dropout_threshold(rate);
  for (std::size_t b = 0; b < batch.size(); ++b) {
    std::array<std::uint32_t, 4> words{};
    for (std::int32_t t = 0; t < lengths[b]; ++t) {
      const auto position = static_cast<std::uint32_t>(t);
      if (position % 4 == 0)
        words = dropout_words(key, static_cast<std::uint32_t>(batch.samples[b]), position / 4, 0);
      if (t >= first && words[position % 4] < threshold)
        ids[static_cast<std::size_t>(t) * batch.size() + b] = Vocabulary::unk_id;
    }
  }
}

}  // namespace

SentenceNoise::SentenceNoise(const Vocabulary& source, const Vocabulary& target,
                             const NoiseSettings& settings)
    : settings_(settings) {
  if (settings.subword_sampling == 0) return;
  sides_[0].sampler.emplace(source, settings.subword_sampling);
  sides_[1].sampler.emplace(target, settings.subword_sampling);
}

void SentenceNoise::split(Side& side, std::size_t b, std::span<const std::int32_t> ids, std::size_t longest,
                          SampleRandom random) {
  std::vector<std::int32_t>& sentence = side.sentences[b];
  if (side.sampler) side.sampler->split(ids, random, sentence);
  if (!side.sampler || sentence.size() > std::min(longest, most_pieces(ids.size())))
    sentence.assign(ids.begin(), ids.end());
}

void SentenceNoise::split(const Dataset& dataset, std::span<const std::size_t> samples, std::uint64_t step) {
  const PhiloxKey source_key = DropoutKey{settings_.seed, step, source_split_site}.philox_key();
  const PhiloxKey target_key = DropoutKey{settings_.seed, step, target_split_site}.philox_key();
  for (Side& side : sides_)
    if (side.sentences.size() < samples.size()) side.sentences.resize(samples.size());
  for (std::size_t b = 0; b < samples.size(); ++b) {
    const auto number = static_cast<std::uint32_t>(samples[b]);
    split(sides_[0], b, dataset.source(samples[b]), dataset.longest_source(), {source_key, number});
    split(sides_[1], b, dataset.target(samples[b]), dataset.longest_target(), {target_key, number});
  }
}

void SentenceNoise::drop_words(Batch& batch, std::uint64_t step) const {
  if (settings_.word_dropout == 0) return;
  const auto key = [&](std::uint32_t site) { return DropoutKey{settings_.seed, step, site}.philox_key(); };
  nmt::drop_words(batch.source, batch, batch.source_lengths, 0, settings_.word_dropout,
                  key(source_words_site));
  // The first word that the decoder reads is <s>.
  nmt::drop_words(batch.target_in, batch, batch.target_lengths, 1, settings_.word_dropout,
                  key(target_words_site));
}

}  // namespace nmt
