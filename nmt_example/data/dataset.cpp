#include "nmt_example/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "nmt_example/data/sentence_noise.hpp"

namespace nmt {

double DatasetFacts::Lengths::ratio() const noexcept {
  if (source == 0 || target == 0) return 0;
  const double of_target = static_cast<double>(source) / target;
  return std::max(of_target, 1 / of_target);
}

std::vector<std::size_t> Dataset::samples_up_to(std::size_t length) const {
  std::vector<std::size_t> samples;
  for (std::size_t i = 0; i < size(); ++i) {
    if (std::max(source(i).size(), target(i).size()) <= length) samples.push_back(i);
  }
  return samples;
}

std::uint32_t Dataset::bucket_of(std::size_t sample, std::size_t num_buckets) const {
  if (num_buckets == 0) {
    throw ddl::Error(ddl::ErrorCode::invalid_argument, "num_buckets is 0; expected at least 1");
  }
  const std::size_t width = facts_.max_len == 0 ? 10 : (facts_.max_len + num_buckets - 1) / num_buckets;
  const std::size_t longer = std::max(source(sample).size(), target(sample).size());
  return static_cast<std::uint32_t>(std::min(num_buckets - 1, longer / width));
}

std::vector<std::uint32_t> Dataset::buckets(std::size_t num_buckets) const {
  std::vector<std::uint32_t> result(size());
  for (std::size_t i = 0; i < size(); ++i) result[i] = bucket_of(i, num_buckets);
  return result;
}

std::vector<LengthGroup> Dataset::groups(std::size_t num_buckets, std::size_t most) const {
  std::vector<LengthGroup> groups(num_buckets);
  for (std::size_t i = 0; i < size(); ++i) {
    if (std::max(source(i).size(), target(i).size()) > most) continue;
    LengthGroup& group = groups[bucket_of(i, num_buckets)];
    ++group.samples;
    group.longest_source = std::max(group.longest_source, source(i).size());
    group.longest_target = std::max(group.longest_target, target(i).size());
    group.longest = std::max(group.longest, source(i).size() + target(i).size());
  }
  std::erase_if(groups, [](const LengthGroup& group) { return group.samples == 0; });
  return groups;
}

std::vector<std::uint32_t> Dataset::lengths() const {
  std::vector<std::uint32_t> result(size());
  for (std::size_t i = 0; i < size(); ++i) {
    result[i] = static_cast<std::uint32_t>(source(i).size() + target(i).size());
  }
  return result;
}

void Batch::reserve(std::size_t max_size, std::size_t max_source_length, std::size_t max_target_length) {
  source.reserve(max_size * max_source_length);
  target_in.reserve(max_size * (max_target_length + 1));
  target_out.reserve(max_size * (max_target_length + 1));
  source_lengths.reserve(max_size);
  target_lengths.reserve(max_size);
  samples.reserve(max_size);
}

void pad_batch(Batch& batch, std::size_t source_steps, std::size_t target_steps) {
  batch.source_steps = source_steps;
  batch.target_steps = target_steps;
  batch.source.resize(source_steps * batch.size(), Vocabulary::eos_id);
  batch.target_in.resize(target_steps * batch.size(), Vocabulary::eos_id);
  batch.target_out.resize(target_steps * batch.size(), Vocabulary::eos_id);
}

void fill_batch(const Dataset& dataset, std::span<const std::size_t> samples, Batch& batch,
                SentenceNoise* noise, std::uint64_t step) {
  const std::size_t size = samples.size();
  batch.samples.resize(size);
  batch.source_lengths.resize(size);
  batch.target_lengths.resize(size);
  batch.source_steps = 0;
  batch.target_steps = 0;
  batch.words = 0;
  batch.target_tokens = 0;
  for (const std::size_t sample : samples) {
    if (sample >= dataset.size()) {
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("sample {} is not in the dataset; it has {}", sample, dataset.size()));
    }
  }
  if (noise != nullptr) noise->split(dataset, samples, step);
  const auto source_of = [&](std::size_t b) {
    return noise != nullptr ? noise->source(b) : dataset.source(samples[b]);
  };
  const auto target_of = [&](std::size_t b) {
    return noise != nullptr ? noise->target(b) : dataset.target(samples[b]);
  };
  for (std::size_t b = 0; b < size; ++b) {
    const std::size_t source_length = source_of(b).size();
    const std::size_t target_length = target_of(b).size() + 1;
    batch.samples[b] = static_cast<std::int32_t>(samples[b]);
    batch.source_lengths[b] = static_cast<std::int32_t>(source_length);
    batch.target_lengths[b] = static_cast<std::int32_t>(target_length);
    batch.source_steps = std::max(batch.source_steps, source_length);
    batch.target_steps = std::max(batch.target_steps, target_length);
    batch.target_tokens += target_length;
    batch.words += source_length + target_length;
  }
  batch.source.assign(batch.source_steps * size, Vocabulary::eos_id);
  batch.target_in.assign(batch.target_steps * size, Vocabulary::eos_id);
  batch.target_out.assign(batch.target_steps * size, Vocabulary::eos_id);
  for (std::size_t b = 0; b < size; ++b) {
    const auto source = source_of(b);
    for (std::size_t t = 0; t < source.size(); ++t) batch.source[t * size + b] = source[t];
    const auto target = target_of(b);
    batch.target_in[b] = Vocabulary::bos_id;
    for (std::size_t t = 0; t < target.size(); ++t) {
      batch.target_in[(t + 1) * size + b] = target[t];
      batch.target_out[t * size + b] = target[t];
    }
  }
  if (noise != nullptr) noise->drop_words(batch, step);
}

}  // namespace nmt
