#include "nmt_example/training/setup.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "ddl/error.hpp"
#include "ddl/log.hpp"
#include "nmt_example/backend/products.hpp"

namespace nmt {

ModelShape model_shape(const Options& options, std::size_t source_vocabulary, std::size_t target_vocabulary) {
  ModelShape shape;
  shape.source_vocabulary = static_cast<std::int64_t>(source_vocabulary);
  shape.target_vocabulary = static_cast<std::int64_t>(target_vocabulary);
  const auto embedding = [&](int size) { return size > 0 ? size : options.num_units; };
  shape.source_embedding = embedding(options.src_embed_size);
  shape.target_embedding = embedding(options.tgt_embed_size);
  // The trainer sets the sizes of given vectors, and those alone.
  shape.source_given = !options.embed_prefix.empty() && options.src_embed_size > 0;
  shape.target_given = !options.embed_prefix.empty() && options.tgt_embed_size > 0;
  shape.units = options.num_units;
  shape.attention_units = options.attention_units > 0 ? options.attention_units : options.num_units;
  shape.encoder_layers = options.encoder_layers();
  shape.decoder_layers = options.decoder_layers();
  shape.unit = options.unit_type;
  shape.encoder = options.encoder_type;
  shape.residual = options.residual;
  shape.language_model = options.language_model;
  shape.attention = options.attention;
  shape.architecture = options.attention_architecture;
  shape.output_attention = options.output_attention;
  shape.pass_hidden_state = options.pass_hidden_state;
  shape.forget_bias = options.forget_bias;
  shape.share_vocabulary = options.share_vocab;
  shape.feed_context = options.feed_context;
  shape.tie_output = options.tie_output;
  shape.output_bias = options.output_bias;
  shape.sampled_words = options.num_sampled_softmax;
  shape.drops_output = options.output_dropout > 0;
  return shape;
}

DropoutSettings dropout_settings(const Options& options, std::uint64_t step) {
  return {options.dropout, options.random_seed, step, options.output_dropout, options.variational_dropout};
}

ModelTypes model_types(const Options& options, const Backend& backend) {
  if (options.dtype != Dtype::mixed) return {};
  const ddl::DataType narrow = backend.narrow_type();
  const bool narrow_gradients = narrow == ddl::DataType::bf16 && options.micro_batch_size == 0 &&
                                options.gradient_wire == ddl::DataType::f32;
  return {.activations = narrow, .gradients = narrow_gradients ? narrow : backend.type()};
}

ddl::DataType activation_type(const Options& options, const Backend& backend) {
  return model_types(options, backend).activations.value_or(backend.type());
}

int threads_per_rank(const ddl::Context& context, const Options& options) {
  if (options.threads > 0) return options.threads;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int processors = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::max(1, processors / context.local_size());
}

std::unique_ptr<Backend> make_backend(ddl::Context& context, const Options& options) {
  std::unique_ptr<Backend> backend;
  const CudaPrecision precision{options.dtype == Dtype::tf32, options.mixed_type};
  context.on_all_ranks(fmt::format("open --device={}", name_of(options.device)), [&] {
    backend = options.device == DeviceKind::cuda
                  ? make_cuda_backend(context.local_rank() % cuda_devices(), precision)
                  : make_cpu_backend(threads_per_rank(context, options));
    const std::string why_not =
        backend->use_lstm(options.rnn == LstmMethod::automatic ? LstmMethod::loop : options.rnn);
    if (!why_not.empty()) throw ddl::Error(ddl::ErrorCode::unsupported, why_not);
  });
  if (context.is_root() && options.dtype == Dtype::mixed && options.device == DeviceKind::cpu) {
    const double speed = cpu::speed_of_bf16();
    if (speed < 1) {
      context.log().notice(fmt::format(
          "--dtype=mixed: {}; --dtype=f32 computes faster here",
          speed == 0
              ? "this processor has no instructions for products of bf16, which are converted to f32 first"
              : fmt::format("this processor multiplies bf16 {:.1f} times as fast as f32", speed)));
    }
  }
  return backend;
}

}  // namespace nmt
