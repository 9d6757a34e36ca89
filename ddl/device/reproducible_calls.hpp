#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "collectives/device/cuda_check.hpp"
#include "collectives/device/kernels.hpp"
#include "collectives/kernels/exact_form.hpp"
#include "ddl/context.hpp"
#include "ddl/device/runtime/dimension_group.hpp"

namespace ddl::device {

/// Reductions of floats in reproducible contexts. Kernels encode the floats as integers, integer reductions
/// add them up, and kernels decode the sums, so that results have the same bits as on the host (see
/// collectives::ReproducibleReductions). A call is cut into parts that fit in the working memory. All calls
/// share that memory, because the caller's streams order the calls.
class ReproducibleCalls {
 public:
  /// The smallest working memory with which any call can be cut into parts.
  [[nodiscard]] static std::size_t least_bytes(int ranks) noexcept {
    return up_to(line_bytes, line * as_index(ranks) * most_bytes_per_element) + line_bytes;
  }

  /// Whether `call` is a reduction of floats.
  [[nodiscard]] static bool concerns(const DeviceCall& call) noexcept {
    const bool is_float = call.type == DataType::f32 || call.type == DataType::f64 ||
                          call.type == DataType::f16 || call.type == DataType::bf16;
    return is_float && reduces(call.collective);
  }

  /// Loads all kernels, because loading one later may block behind waiting kernels. `memory` is device memory
  /// of the same size on all ranks. Collective; errors are agreed.
  ReproducibleCalls(const Context& context, std::span<std::byte> memory)
      : rank_(as_index(context.rank())), ranks_(as_index(context.size())), memory_(memory) {
    context.on_all_ranks("kernels of reproducible reductions", [] {
      check_cuda(collectives::device::load_exact_kernels(), "cudaFuncGetAttributes");
    });
  }

  /// Queues a reduction of floats. The parts that go to `pass_on` are not reductions of floats.
  void run(const DeviceCall& call, const PassOn& pass_on) const {
    if (ranks_ == 1) {  // copies NaNs and infinities unchanged, as the host does
      return pass_on(call.part(Collective::all_gather, call.input, call.output, call.count));
    }
    call.op == ReduceOp::prod ? multiply(call, pass_on) : reduce(call, pass_on);
  }

 private:
  using ExactForm = collectives::ExactForm;
  using ExactPass = collectives::device::ExactPass;
  using ExactStep = collectives::device::ExactStep;
  using Collective = topology::Collective;

  /// Alignment of ranks' shares in elements, so that kernels access them in packs.
  static constexpr std::size_t line = 16;
  static constexpr std::size_t line_bytes = 128;
  /// An all_reduce of at most this size reduces all limbs on every rank: more bytes, but one collective less.
  static constexpr std::size_t whole_bytes = std::size_t{256} << 10;
  static constexpr std::size_t most_bytes_per_element = 20;  // f64: a scale and two limbs

  static constexpr std::size_t up_to(std::size_t multiple, std::size_t number) {
    return (number + multiple - 1) / multiple * multiple;
  }

  /// The length of the fewest parts that have at most `room` elements; all but the last have this length.
  static std::size_t part_length(std::size_t count, std::size_t room, std::size_t unit) {
    const std::size_t most = room / unit * unit;
    const std::size_t parts = (count + most - 1) / most;
    return up_to(unit, (count + parts - 1) / parts);
  }

  static ExactStep encoding(const ExactForm& form) {
    if (form.op() == ReduceOp::min) return ExactStep::least_keys;
    if (form.op() == ReduceOp::max) return ExactStep::greatest_keys;
    return form.limbs().type == DataType::i32 ? ExactStep::encode_short : ExactStep::encode;
  }

  static ExactStep decoding(const ExactForm& form) {
    if (form.op() == ReduceOp::min) return ExactStep::decode_least;
    if (form.op() == ReduceOp::max) return ExactStep::decode_greatest;
    return form.limbs().type == DataType::i32 ? ExactStep::decode_short : ExactStep::decode;
  }

  /// Elements [begin, begin + length) of the call, or of each rank's piece in a reduce_scatter.
  struct Part {
    const DeviceCall& call;
    const ExactForm& form;
    std::size_t begin;
    std::size_t length;
    bool is_scattered;  // an all_reduce in which each rank decodes only its share
  };

  void reduce(const DeviceCall& call, const PassOn& pass_on) const {
    const ExactForm form(call.type, call.op, static_cast<int>(ranks_));
    const std::size_t each = form.limbs().bytes() + (form.scales() ? form.scales()->bytes() : 0);
    const std::size_t runs = call.collective == Collective::reduce_scatter ? ranks_ : 1;
    const std::size_t room = (memory_.size() - line_bytes) / each / runs;
    const bool is_scattered = call.collective == Collective::all_reduce && call.count >= line * ranks_ &&
                              call.count * size_of(call.type) > whole_bytes;
    const std::size_t unit = is_scattered ? line * ranks_ : line;
    const std::size_t rest = is_scattered ? call.count % unit : 0;
    const std::size_t count = call.count - rest;
    const std::size_t length = part_length(count, room, unit);
    for (std::size_t begin = 0; begin < count; begin += length) {
      reduce_part({call, form, begin, std::min(length, count - begin), is_scattered}, pass_on);
    }
    if (rest > 0) reduce_part({call, form, count, rest, false}, pass_on);
  }

  void reduce_part(const Part& part, const PassOn& pass_on) const {
    const DeviceCall& call = part.call;
    const ExactForm& form = part.form;
    const std::size_t element = size_of(call.type);
    const bool has_pieces = call.collective == Collective::reduce_scatter;
    const std::size_t scale_bytes = form.scales() ? form.scales()->bytes() : 0;
    const std::size_t limb_bytes = form.limbs().bytes();

    ExactPass pass;
    pass.input = call.input + part.begin * element;
    pass.runs = has_pieces ? ranks_ : 1;
    pass.length = part.length;
    pass.stride = call.count;
    pass.pitch = up_to(line, part.length);  // the padding between runs is reduced too, and ignored
    const std::size_t elements = has_pieces ? ranks_ * pass.pitch : part.length;
    pass.scales = memory_.data();
    pass.limbs = memory_.data() + up_to(line_bytes, elements * scale_bytes);
    pass.bits = form.bits();
    pass.divisor = call.op == ReduceOp::avg ? static_cast<double>(ranks_) : 1;

    const auto collective = [&](Collective name, const std::byte* input, std::byte* output, std::size_t count,
                                DataType type, ReduceOp op) {
      DeviceCall made = call.part(name, input, output, count);
      made.type = type;
      made.op = op;
      pass_on(made);
    };
    if (form.scales()) {
      collectives::device::launch_exact_step(ExactStep::scales, call.type, pass, call.stream);
      collective(Collective::all_reduce, pass.scales, pass.scales, elements * form.scales()->each,
                 form.scales()->type, ReduceOp::max);
    }
    collectives::device::launch_exact_step(encoding(form), call.type, pass, call.stream);

    const bool is_shared = has_pieces || part.is_scattered;  // each rank receives the sums of its share only
    const std::size_t share = is_shared ? elements / ranks_ : elements;
    const std::size_t first = is_shared ? rank_ * share : 0;
    const std::size_t results = has_pieces ? part.length : share;
    std::byte* const sums = pass.limbs + first * limb_bytes;
    collective(is_shared ? Collective::reduce_scatter : call.collective, pass.limbs, sums,
               share * form.limbs().each, form.limbs().type, form.op());
    if (call.collective == Collective::reduce && rank_ != as_index(call.root)) return;

    std::byte* const output = call.output + part.begin * element;
    pass.output = output + (part.is_scattered ? first * element : 0);
    pass.scales += first * scale_bytes;
    pass.limbs = sums;
    pass.runs = 1;
    pass.length = results;
    collectives::device::launch_exact_step(decoding(form), call.type, pass, call.stream);
    if (part.is_scattered) {
      collective(Collective::all_gather, pass.output, output, share, call.type, ReduceOp::sum);
    }
  }

  /// Gathers the inputs of all ranks and multiplies them in rank order. A reduce_scatter does this for one
  /// rank's piece after the other.
  void multiply(const DeviceCall& call, const PassOn& pass_on) const {
    const std::size_t element = size_of(call.type);
    const bool has_pieces = call.collective == Collective::reduce_scatter;
    const std::size_t most = memory_.size() / (element * ranks_) / line * line;
    for (std::size_t piece = 0; piece < (has_pieces ? ranks_ : 1); ++piece) {
      for (std::size_t begin = 0; begin < call.count; begin += most) {
        const std::size_t length = std::min(most, call.count - begin);
        const std::byte* const input = call.input + (piece * call.count + begin) * element;
        pass_on(call.part(Collective::all_gather, input, memory_.data(), length));
        if (has_pieces && piece != rank_) continue;
        if (call.collective == Collective::reduce && rank_ != as_index(call.root)) continue;
        ExactPass pass;
        pass.input = memory_.data();
        pass.output = call.output + begin * element;
        pass.length = length;
        pass.stride = length;
        pass.ranks = ranks_;
        collectives::device::launch_exact_step(ExactStep::multiply, call.type, pass, call.stream);
      }
    }
  }

  const std::size_t rank_;
  const std::size_t ranks_;
  const std::span<std::byte> memory_;
};

}  // namespace ddl::device
