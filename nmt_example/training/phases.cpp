#include "nmt_example/training/phases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "ddl/error.hpp"
#include "nmt_example/data/sentence_noise.hpp"

namespace nmt {
namespace {

/// Those elements of `values` whose numbers are `samples`; all of them if that is empty.
std::vector<std::uint32_t> only(const std::vector<std::size_t>& samples, std::vector<std::uint32_t> values) {
  if (samples.empty()) return values;
  std::vector<std::uint32_t> chosen;
  for (const std::size_t sample : samples) chosen.push_back(values[sample]);
  return chosen;
}

/// The sentences of a rank's batch in phase 1.
int phase1_batch_size(const Options& options) {
  return options.phase1_batch_size > 0 ? options.phase1_batch_size : options.batch_size;
}

/// Those of phase 1.
std::vector<std::size_t> short_samples(const Options& options, const Dataset& dataset, std::size_t ranks) {
  std::vector<std::size_t> samples = dataset.samples_up_to(static_cast<std::size_t>(options.phase1_max_len));
  if (samples.size() < ranks) {
    throw ddl::Error(
        ddl::ErrorCode::invalid_argument,
        fmt::format("--phase1_max_len={}: {} of {} training pairs are so short, and {} ranks need one each; "
                    "give a larger one, or leave --phase1_steps out",
                    options.phase1_max_len, samples.size(), dataset.size(), ranks));
  }
  return samples;
}

/// Over some samples of the dataset, or all if there are none.
ddl::ShardedSampler sampler_of(const ddl::Context& context, const Options& options, const Dataset& dataset,
                               const std::vector<std::size_t>& samples, int batch_size, int batch_words) {
  return {context,
          samples.empty() ? dataset.size() : samples.size(),
          {.seed = options.random_seed,
           .batch_size = static_cast<std::size_t>(batch_size),
           .batch_length = static_cast<std::size_t>(batch_words),
           .shuffle = true,
           .buckets = only(samples, dataset.buckets(static_cast<std::size_t>(options.num_buckets))),
           .lengths = only(samples, dataset.lengths())}};
}

}  // namespace

Phases::Phases(ddl::Context& context, const Options& options, const Dataset& dataset)
    : longest_in_phase1_(options.phase1_max_len) {
  if (options.phase1_steps > 0) {
    std::vector<std::size_t> samples;
    context.on_all_ranks("choose the pairs of phase 1", [&] {
      samples = short_samples(options, dataset, static_cast<std::size_t>(context.size()));
    });
    add(context, options, dataset, 0, std::move(samples), phase1_batch_size(options),
        options.phase1_batch_size > 0 ? 0 : options.batch_words);
  }
  add(context, options, dataset, static_cast<std::uint64_t>(std::int64_t{options.phase1_steps}), {},
      options.batch_size, options.batch_words);
}

void Phases::add(const ddl::Context& context, const Options& options, const Dataset& dataset,
                 std::uint64_t first_step, std::vector<std::size_t> samples, int batch_size,
                 int batch_words) {
  ddl::ShardedSampler sampler = sampler_of(context, options, dataset, samples, batch_size, batch_words);
  std::string fresh = sampler.state();
  phases_.push_back({first_step, std::move(samples), std::move(sampler), std::move(fresh)});
}

void Phases::next(std::uint64_t done, ddl::ShardedBatch& share) {
  Phase& phase = phases_[index_of(done)];
  phase.sampler.next(share);
  share.step += phase.first_step;
  if (phase.samples.empty()) return;
  for (std::size_t& sample : share.samples) sample = phase.samples[sample];
}

void Phases::restore(std::uint64_t done, std::string_view state) {
  const std::size_t now = index_of(done);
  phases_[now].sampler.restore(state);
  for (std::size_t later = now + 1; later < phases_.size(); ++later)
    phases_[later].sampler.restore(phases_[later].fresh);
}

std::string Phases::description() const {
  if (phases_.size() == 1) return "";
  return fmt::format("phase 1: {} steps with the {} pairs of at most {} tokens a side, {} steps an epoch\n",
                     phases_[1].first_step, phases_[0].samples.size(), longest_in_phase1_,
                     phases_[0].sampler.steps_per_epoch());
}

std::uint64_t steps_per_epoch(const ddl::Context& context, const Options& options, const Dataset& dataset) {
  return sampler_of(context, options, dataset, {}, options.batch_size, options.batch_words).steps_per_epoch();
}

std::vector<BatchLimits> batch_limits(const Options& options, const Dataset& dataset) {
  const std::size_t longest_source = dataset.longest_source(), longest_target = dataset.longest_target();
  std::vector<BatchLimits> limits;
  const auto add = [&](std::size_t sentences, std::size_t source, std::size_t target) {
    if (options.micro_batch_size > 0)
      sentences = std::min(sentences, static_cast<std::size_t>(options.micro_batch_size));
    limits.push_back({static_cast<std::int64_t>(sentences),
                      static_cast<std::int64_t>(std::min(source, longest_source)),
                      static_cast<std::int64_t>(std::min(target, longest_target)) + 1});
  };
  const auto with_noise = [&](std::size_t length) {
    return options.subword_sampling > 0 ? SentenceNoise::most_pieces(length) : length;
  };
  /// Of the pairs of which no side is longer than `most`.
  const auto add_phase = [&](std::size_t most, int batch_size, int batch_words) {
    if (batch_words == 0)
      return add(static_cast<std::size_t>(batch_size), with_noise(most), with_noise(most));
    const auto words = static_cast<std::size_t>(batch_words);
    for (const LengthGroup& group : dataset.groups(static_cast<std::size_t>(options.num_buckets), most)) {
      // Rounded up, because a rank may have one sentence more than others.
      add(std::min((words + group.longest - 1) / group.longest, group.samples),
          with_noise(group.longest_source), with_noise(group.longest_target));
    }
  };
  if (options.phase1_steps > 0) {
    add_phase(static_cast<std::size_t>(options.phase1_max_len), phase1_batch_size(options),
              options.phase1_batch_size > 0 ? 0 : options.batch_words);
  }
  add_phase(std::max(longest_source, longest_target), options.batch_size, options.batch_words);
  std::ranges::stable_sort(limits, std::ranges::greater(), &BatchLimits::sentences);
  return limits;
}

}  // namespace nmt
