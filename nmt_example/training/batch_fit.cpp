#include "nmt_example/training/batch_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "ddl/error.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/training/host_memory.hpp"
#include "nmt_example/training/optimizer.hpp"
#include "nmt_example/training/phases.hpp"
#include "nmt_example/training/setup.hpp"

namespace nmt {
namespace {

/// The memory that there is for a rank.
struct Room {
  std::size_t bytes;
  std::string what;  // for messages
};

Room room_of(const ddl::Context& context, const Options& options, bool finds, const Backend& backend) {
  if (options.workspace > 0) {
    return {static_cast<std::size_t>(options.workspace) * 1'000'000,
            fmt::format("--workspace={}", options.workspace)};
  }
  const auto ranks_here = static_cast<std::size_t>(context.local_size());
  const bool on_host = backend.host_accessible();
  const auto devices = on_host ? std::size_t{1} : static_cast<std::size_t>(cuda_devices());
  const std::size_t sharing = (ranks_here + devices - 1) / devices;
  const HostMemory host = on_host ? host_memory() : HostMemory();
  const std::size_t free = on_host ? host.available : free_device_memory();
  std::string what = fmt::format("of {} MB that are free", free / 1'000'000);
  // What is free on a host now may be more when it is needed.
  const std::size_t bytes = finds ? free / 10 * 9 : on_host ? host.total : free;
  if (on_host && !finds) what = "all that the host has";
  return {bytes / sharing, sharing == 1 ? what : fmt::format("{}, for {} ranks", what, sharing)};
}

/// The flag that limits what a rank computes at a time.
struct BatchFlag {
  std::string_view name;
  int Options::*member;
};

BatchFlag batch_flag(const Options& options) {
  if (options.micro_batch_size > 0) return {"micro_batch_size", &Options::micro_batch_size};
  if (options.batch_words > 0) return {"batch_words", &Options::batch_words};
  return {"batch_size", &Options::batch_size};
}

/// No rank's batch is larger.
int most_of(const BatchFlag& flag, const Dataset& dataset, int ranks) {
  const bool words = flag.member == &Options::batch_words;
  const std::size_t all = words ? dataset.tokens() : dataset.size();
  const double most = find_flag(flag.name)->range.most.value();
  return static_cast<int>(std::min(std::ceil(static_cast<double>(all) / ranks), most));
}

[[noreturn]] void refuse(const std::string& what, const TrainingMemory& least, const Room& room) {
  throw ddl::Error(
      ddl::ErrorCode::invalid_argument,
      fmt::format(
          "{}: no batch fits: with one sentence at a time, training needs {:.0f} MB a rank ({:.0f} of "
          "parameters, {:.0f} of gradients, {:.0f} of the optimiser, {:.0f} of activations), and there "
          "are {:.0f} ({}). Make the model, --src_max_len and --tgt_max_len smaller, or start fewer "
          "ranks a host.",
          what, megabytes(least.needed()), megabytes(least.parameters), megabytes(least.gradients),
          megabytes(least.optimizer), megabytes(least.activations), megabytes(room.bytes), room.what));
}

/// The memory that batches of other sizes would take.
class Sizes {
 public:
  Sizes(const Options& options, const Dataset& dataset, Backend& backend, const ModelShape& shape, int ranks)
      : options_(options),
        flag_(batch_flag(options)),
        dataset_(dataset),
        backend_(backend),
        model_(backend, shape, BatchLimits(), nullptr, model_types(options, backend)),
        ranks_(ranks) {}

  TrainingMemory memory_with(int batch) {
    Options other = options_;
    other.*flag_.member = batch;
    return training_memory(other, dataset_, backend_, model_, ranks_);
  }

  /// The largest batch with which training takes no more than `most`; 0: none.
  int largest(std::size_t most, std::size_t (TrainingMemory::*bytes)() const) {
    const int all = most_of(flag_, dataset_, ranks_);
    int fitting = 0, above = all + 1;
    while (above - fitting > 1) {
      const int middle = fitting + (above - fitting) / 2;
      ((memory_with(middle).*bytes)() <= most ? fitting : above) = middle;
    }
    constexpr int multiple = 8;  // products are slower with other numbers of rows
    if (fitting == all || flag_.member == &Options::batch_words || fitting < 2 * multiple) return fitting;
    return fitting / multiple * multiple;
  }

 private:
  const Options& options_;
  BatchFlag flag_;
  const Dataset& dataset_;
  Backend& backend_;
  Model model_;
  int ranks_;
};

}  // namespace

TrainingMemory training_memory(const Options& options, const Dataset& dataset, const Backend& backend,
                               Model& model, int ranks) {
  const auto parameters = static_cast<std::size_t>(model.parameters().layout().extent);
  const std::size_t each = ddl::size_of(backend.type());
  const std::size_t of_gradient =
      ddl::size_of(model_types(options, backend).gradients.value_or(backend.type()));
  const std::size_t sharing = options.sharded_update ? static_cast<std::size_t>(ranks) : 1;
  TrainingMemory memory{parameters * each, parameters * of_gradient,
                        Optimizer::moments(options) * parameters * each / sharing, 0};
  if (options.ema_decay > 0) memory.optimizer += parameters * each;
  for (const BatchLimits& limits : batch_limits(options, dataset))
    memory.activations = std::max(memory.activations, model.training_bytes(limits));
  return memory;
}

std::string fit_batch(ddl::Context& context, Options& options, const Dataset& dataset, Backend& backend,
                      const ModelShape& shape) {
  const BatchFlag flag = batch_flag(options);
  Room room{};
  // Before any rank takes some of it.
  context.on_all_ranks("measure the memory", [&] { room = room_of(context, options, true, backend); });
  double batch[1];
  context.on_all_ranks("find the largest batch", [&] {
    Sizes sizes(options, dataset, backend, shape, context.size());
    batch[0] = sizes.largest(room.bytes, &TrainingMemory::needed);
    if (batch[0] == 0) refuse("--mini_batch_fit", sizes.memory_with(1), room);
  });
  context.communicator().all_reduce(std::span(batch), ddl::ReduceOp::min);
  options.*flag.member = static_cast<int>(batch[0]);
  return fmt::format("--mini_batch_fit: --{}={}, for {:.0f} MB a rank ({}); the learning rate stays as it is",
                     flag.name, options.*flag.member, megabytes(room.bytes), room.what);
}

void check_batch(ddl::Context& context, const Options& options, const Dataset& dataset, Backend& backend,
                 const ModelShape& shape) {
  const BatchFlag flag = batch_flag(options);
  Room room{};
  context.on_all_ranks("measure the memory", [&] { room = room_of(context, options, false, backend); });
  context.on_all_ranks("compute the memory of a batch", [&] {
    Sizes sizes(options, dataset, backend, shape, context.size());
    const auto bytes = options.workspace > 0 ? &TrainingMemory::needed : &TrainingMemory::sum;
    const std::size_t asked = (sizes.memory_with(options.*flag.member).*bytes)();
    if (asked <= room.bytes) return;
    const std::string what = fmt::format("--{}={}", flag.name, options.*flag.member);
    const int fitting = sizes.largest(room.bytes, bytes);
    if (fitting == 0) refuse(what, sizes.memory_with(1), room);
    throw ddl::Error(
        ddl::ErrorCode::invalid_argument,
        fmt::format("{}: training needs {:.0f} MB a rank, and there are {:.0f} ({}); --{}={} fits{}", what,
                    megabytes(asked), megabytes(room.bytes), room.what, flag.name, fitting,
                    options.micro_batch_size > 0
                        ? ""
                        : ", and --micro_batch_size computes a batch in smaller parts"));
  });
}

}  // namespace nmt
