#include "collectives/communicator/reproducible_reductions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/job.hpp"
#include "collectives/kernels/exact_form.hpp"
#include "collectives/kernels/reduce.hpp"

namespace ddl::collectives {

using topology::Collective;

namespace {

/// Scratch memory of a part, and the limit for all parts in flight.
constexpr std::size_t part_bytes = std::size_t{9} << 20;
constexpr std::size_t most_scratch_bytes = 3 * part_bytes;
/// Up to this size an all_reduce of floats is one of limbs, which saves a collective but moves more bytes.
constexpr std::size_t whole_bytes = std::size_t{16} << 10;

constexpr std::size_t padded(std::size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

bool is_float(DataType type) noexcept {
  return type == DataType::f32 || type == DataType::f64 || type == DataType::f16 || type == DataType::bf16;
}

}  // namespace

struct ReproducibleReductions::Reduction {
  Request request;  // as given, with the place where this rank's results begin; null if it gets none
  std::size_t element;
  std::uint64_t record;
  std::shared_ptr<WorkState> work;
  std::optional<ExactForm> form;  // none for products

  // Protected by the mutex.
  std::size_t parts_left = 0;
  std::optional<Error> error = {};

  [[nodiscard]] std::size_t scale_bytes() const noexcept {
    return form && form->scales() ? form->scales()->bytes() : 0;
  }
  [[nodiscard]] std::size_t scratch_per_element(int ranks) const noexcept {
    if (!form) return element * as_index(ranks);
    return form->limbs().bytes() + scale_bytes();
  }
};

/// Elements [begin, begin + length) of the reduction, or of each rank's piece in a reduce_scatter.
struct ReproducibleReductions::Part {
  std::shared_ptr<Reduction> reduction;
  std::size_t begin = 0;
  std::size_t length = 0;
  bool is_scattered = false;  // an all_reduce in which each rank rounds its share
  Stage next = Stage::limbs;
  std::byte* scratch = nullptr;

  // Protected by the mutex.
  bool is_running = false;
  Block* block = nullptr;

  [[nodiscard]] bool has_pieces() const noexcept {
    return reduction->request.collective == Collective::reduce_scatter;
  }
  /// Of the input.
  [[nodiscard]] std::size_t elements(int ranks) const noexcept {
    return has_pieces() ? length * as_index(ranks) : length;
  }
  [[nodiscard]] std::size_t scratch_bytes(int ranks) const noexcept {
    return elements(ranks) * reduction->scratch_per_element(ranks) + 64;
  }
  /// The scales of element `first` in scratch memory. All limbs follow all scales.
  [[nodiscard]] std::byte* scales(std::size_t first = 0) const noexcept {
    return scratch + first * reduction->scale_bytes();
  }
  [[nodiscard]] std::byte* limbs(int ranks, std::size_t first = 0) const noexcept {
    return scratch + padded(elements(ranks) * reduction->scale_bytes()) +
           first * reduction->form->limbs().bytes();
  }
  void decode(int ranks, std::size_t first, std::byte* output, std::size_t count) const noexcept {
    reduction->form->decode(scales(first), limbs(ranks, first), output, count);
  }
  /// Calls `use(input, first, count)` for each contiguous range of input, which begins at element `first` of
  /// scratch memory.
  template <typename Use>
  void each_run(int ranks, const Use& use) const {
    const std::byte* const input = reduction->request.buffers.input + begin * reduction->element;
    if (!has_pieces()) return use(input, std::size_t{0}, length);
    for (std::size_t piece = 0; piece < as_index(ranks); ++piece) {
      use(input + piece * reduction->request.count * reduction->element, piece * length, length);
    }
  }
};

ReproducibleReductions::ReproducibleReductions(std::shared_ptr<Job> job, Lanes communicators)
    : job_(std::move(job)), lanes_(std::move(communicators)), place_(lanes_[0]->place()) {}

bool ReproducibleReductions::concerns(const Request& request) noexcept {
  const bool reduces = request.collective == Collective::all_reduce ||
                       request.collective == Collective::reduce_scatter ||
                       request.collective == Collective::reduce;
  return reduces && is_float(request.type);
}

// Parts in flight.

std::shared_ptr<ReproducibleReductions::Reduction> ReproducibleReductions::accept(const Request& request,
                                                                                  const Call& call,
                                                                                  std::uint32_t fingerprint) {
  const std::size_t element = size_of(request.type);
  auto reduction =
      std::make_shared<Reduction>(Reduction{request, element, call.record, job_->open_work(), std::nullopt});
  reduction->request.part_of = {call.id, fingerprint};
  std::byte*& output = reduction->request.buffers.output;
  if (request.collective == Collective::reduce_scatter) {
    output += as_index(place_.rank) * request.count * element;
  }
  if (request.collective == Collective::reduce && place_.rank != request.root) output = nullptr;
  if (request.op != ReduceOp::prod) reduction->form.emplace(request.type, request.op, place_.size);
  job_->engine().recorder().begun(reduction->record);
  add_parts(reduction, request);
  return reduction;
}

void ReproducibleReductions::add_parts(const std::shared_ptr<Reduction>& reduction, const Request& request) {
  const auto ranks = as_index(place_.size);
  std::vector<std::shared_ptr<Part>> parts;
  const auto add = [&](std::size_t begin, std::size_t length, bool is_scattered) {
    auto part = std::make_shared<Part>();
    part->reduction = reduction;
    part->begin = begin;
    part->length = length;
    part->is_scattered = is_scattered;
    part->next = reduction->form && reduction->form->scales() ? Stage::scales : Stage::limbs;
    parts.push_back(std::move(part));
  };
  std::size_t count = request.count;
  const bool is_scattered = request.collective == Collective::all_reduce && reduction->form &&
                            count >= ranks && count * reduction->element > whole_bytes;
  const std::size_t unit = is_scattered ? ranks : 1;
  if (is_scattered && count % ranks != 0) {  // the remainder first, so that it is not the last to finish
    add(count - count % ranks, count % ranks, false);
    count -= count % ranks;
  }
  const std::size_t pieces = request.collective == Collective::reduce_scatter ? ranks : 1;
  const std::size_t most =
      std::max(unit, part_bytes / (reduction->scratch_per_element(place_.size) * pieces) / unit * unit);
  const std::size_t number = (count + most - 1) / most;
  const std::size_t length = ((count + number - 1) / number + unit - 1) / unit * unit;
  for (std::size_t begin = 0; begin < count; begin += length) {
    add(begin, std::min(length, count - begin), is_scattered);
  }
  const std::lock_guard lock(mutex_);
  reduction->parts_left = parts.size();
  parts_.insert(parts_.end(), parts.begin(), parts.end());
}

std::shared_ptr<WorkState> ReproducibleReductions::start(const std::shared_ptr<Reduction>& reduction) {
  pump();
  return reduction->work;
}

void ReproducibleReductions::run(const std::shared_ptr<Reduction>& reduction) {
  std::shared_ptr<Part> only;
  {
    const std::lock_guard lock(mutex_);
    if (!pumping_ && parts_.size() == 1 && parts_.front()->reduction == reduction &&
        !parts_.front()->is_running && parts_.front()->block == nullptr && take_block(*parts_.front())) {
      only = parts_.front();
      only->is_running = true;
      pumping_ = true;
    }
  }
  if (only) {  // in this thread, which saves a hand-over
    run_here(only);
    const std::lock_guard lock(mutex_);
    pumping_ = false;
  }
  pump();
  reduction->work->wait();
}

void ReproducibleReductions::run_here(const std::shared_ptr<Part>& part) {
  std::optional<Error> error;
  try {
    while (part->next != Stage::finish) {
      const Stage stage = part->next;
      lanes_[as_index(stage)]->run(prepared(*part));
    }
  } catch (const std::exception& problem) {
    error = error_of(*part, problem);
  }
  {
    const std::lock_guard lock(mutex_);
    if (error) part->reduction->error = std::move(error);
  }
  finish(part);
}

/// Begins and finishes parts that are due, in one thread at a time.
void ReproducibleReductions::pump() {
  {
    const std::lock_guard lock(mutex_);
    pump_again_ = true;
    if (pumping_) return;
    pumping_ = true;
  }
  for (;;) {
    std::shared_ptr<Part> part;
    {
      const std::lock_guard lock(mutex_);
      if (!pump_again_) {
        pumping_ = false;
        return;
      }
      part = next_due();
      if (!part) pump_again_ = false;
    }
    if (!part) continue;
    if (part->next == Stage::finish) {
      finish(part);
    } else {
      begin(part);
    }
  }
}

/// The first part whose next stage may begin: its previous stage is complete, no earlier part has this stage
/// still to begin, and there is memory. Caller holds the mutex.
std::shared_ptr<ReproducibleReductions::Part> ReproducibleReductions::next_due() {
  std::array<bool, lanes> is_blocked{};
  bool has_memory = true;
  for (const std::shared_ptr<Part>& part : parts_) {
    const auto stage = as_index(part->next);
    if (!part->is_running) {
      if (part->reduction->error) part->next = Stage::finish;
      const bool is_over = part->next == Stage::finish;
      // In the order of parts, so that only later parts wait for earlier ones.
      if (!is_over && part->block == nullptr) has_memory = has_memory && take_block(*part);
      if (is_over || (part->block != nullptr && !is_blocked[stage])) {
        part->is_running = true;
        return part;
      }
    }
    // Stages that this part has still to begin precede those of later parts. A running part's `next` is the
    // stage after the one that it is in.
    const std::size_t stages = part->is_scattered ? lanes : lanes - 1;
    for (std::size_t later = stage; later < stages; ++later) is_blocked[later] = true;
  }
  return nullptr;
}

/// Caller holds the mutex.
bool ReproducibleReductions::take_block(Part& part) {
  const std::size_t bytes = part.scratch_bytes(place_.size);
  std::size_t used = 0;
  Block* best = nullptr;
  for (const auto& block : blocks_) {
    if (block->is_used) {
      used += block->bytes;
    } else if (block->bytes >= bytes && (best == nullptr || block->bytes < best->bytes)) {
      best = block.get();
    }
  }
  if (best == nullptr) {
    if (used != 0 && used + bytes > most_scratch_bytes) return false;
    std::size_t all = bytes;
    for (const auto& block : blocks_) all += block->bytes;
    if (all > most_scratch_bytes) std::erase_if(blocks_, [](const auto& block) { return !block->is_used; });
    blocks_.push_back(std::make_unique<Block>());
    best = blocks_.back().get();
    best->bytes = std::max(bytes, std::size_t{4096});
  }
  best->is_used = true;
  part.block = best;
  return true;
}

/// The part's `is_running` must be set.
void ReproducibleReductions::begin(const std::shared_ptr<Part>& part) {
  try {
    const Stage stage = part->next;
    const Request request = prepared(*part);
    lanes_[as_index(stage)]->start(request)->then(
        [self = shared_from_this(), part](const Error* error) { self->completed(part, error); });
  } catch (const std::exception& problem) {
    const Error error = error_of(*part, problem);
    completed(part, &error);
  }
}

void ReproducibleReductions::completed(const std::shared_ptr<Part>& part, const Error* error) {
  {
    const std::lock_guard lock(mutex_);
    part->is_running = false;
    if (error != nullptr) {
      if (!part->reduction->error) part->reduction->error = *error;
      part->next = Stage::finish;
    }
  }
  pump();
}

/// Finishes a part, and with the last part the reduction.
void ReproducibleReductions::finish(const std::shared_ptr<Part>& part) {
  Reduction& reduction = *part->reduction;
  bool has_failed = false;
  {
    const std::lock_guard lock(mutex_);
    has_failed = reduction.error.has_value();
  }
  if (!has_failed && reduction.request.buffers.output != nullptr && !part->is_scattered) {
    const auto rank = as_index(place_.rank);
    const std::size_t first = part->has_pieces() ? rank * part->length : 0;
    std::byte* const output = reduction.request.buffers.output + part->begin * reduction.element;
    if (reduction.form) {
      part->decode(place_.size, first, output, part->length);
    } else {
      multiply_in_order(reduction.request.type, part->scratch + first * reduction.element,
                        part->elements(place_.size), place_.size, output, part->length);
    }
  }
  bool is_last = false;
  std::optional<Error> error;
  {
    const std::lock_guard lock(mutex_);
    if (part->block != nullptr) part->block->is_used = false;
    std::erase(parts_, part);
    is_last = --reduction.parts_left == 0;
    error = reduction.error;
  }
  if (!is_last) return;
  job_->engine().recorder().over(reduction.record, error.has_value());
  job_->finish(reduction.work, std::move(error));
}

/// An `Error` has been announced to the other ranks by the function that threw it.
Error ReproducibleReductions::error_of(const Part& part, const std::exception& problem) const {
  if (const auto* own = dynamic_cast<const Error*>(&problem)) return *own;
  return job_->give_up(part.reduction->request.part_of->id, place_.rank, problem);
}

// Stages.

/// Computes the input of the part's next stage and returns the stage's call. Advances `next`.
Request ReproducibleReductions::prepared(Part& part) const {
  const Reduction& reduction = *part.reduction;
  const std::size_t elements = part.elements(place_.size);
  if (part.scratch == nullptr) {
    Block& block = *part.block;
    if (!block.memory) block.memory = job_->engine().allocate(block.bytes);
    if (!block.memory) {
      const Error problem(ErrorCode::transport,
                          fmt::format("the system has no {} bytes left for this rank's scratch memory, "
                                      "which reproducible reductions need",
                                      block.bytes));
      throw Error(job_->give_up(reduction.request.part_of->id, place_.rank, problem));
    }
    part.scratch = static_cast<std::byte*>(block.memory.get());
  }
  Request request;
  if (part.next == Stage::scales) {
    const ExactForm::Layout& scales = *reduction.form->scales();
    part.each_run(place_.size, [&](const std::byte* input, std::size_t first, std::size_t count) {
      reduction.form->write_scales(input, part.scales(first), count);
    });
    request =
        all_reduce_request(part.scratch, part.scratch, elements * scales.each, scales.type, ReduceOp::max);
    part.next = Stage::limbs;
  } else if (part.next == Stage::limbs && !reduction.form) {
    std::byte* const own = part.scratch + as_index(place_.rank) * elements * reduction.element;
    part.each_run(place_.size, [&](const std::byte* input, std::size_t first, std::size_t count) {
      copy_bytes(own + first * reduction.element, input, count * reduction.element);
    });
    request = all_gather_request(place_, own, part.scratch, elements, reduction.request.type);
    part.next = Stage::finish;
  } else if (part.next == Stage::limbs) {
    const ExactForm::Layout& layout = reduction.form->limbs();
    std::byte* const limbs = part.limbs(place_.size);
    part.each_run(place_.size, [&](const std::byte* input, std::size_t first, std::size_t count) {
      reduction.form->encode(input, part.scales(first), part.limbs(place_.size, first), count);
    });
    const ReduceOp op = reduction.form->op();
    if (part.is_scattered || part.has_pieces()) {
      const std::size_t count = elements / as_index(place_.size);
      std::byte* const own = limbs + as_index(place_.rank) * count * layout.bytes();
      request = reduce_scatter_request(place_, limbs, own, count * layout.each, layout.type, op);
    } else if (reduction.request.collective == Collective::reduce) {
      request = reduce_request(place_, limbs, limbs, elements * layout.each, layout.type, op,
                               reduction.request.root);
    } else {
      request = all_reduce_request(limbs, limbs, elements * layout.each, layout.type, op);
    }
    part.next = part.is_scattered ? Stage::results : Stage::finish;
  } else {
    const std::size_t count = part.length / as_index(place_.size);
    const std::size_t first = as_index(place_.rank) * count;
    std::byte* const output = reduction.request.buffers.output + part.begin * reduction.element;
    std::byte* const own = output + first * reduction.element;
    part.decode(place_.size, first, own, count);
    request = all_gather_request(place_, own, output, count, reduction.request.type);
    part.next = Stage::finish;
  }
  request.part_of = reduction.request.part_of;
  return request;
}

}  // namespace ddl::collectives
