#include "ddl/mpi_interposer/served_sizes.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>
#include <vector>

#include "collectives/communicator/communicator_impl.hpp"
#include "ddl/mpi_interposer/program_memory.hpp"
#include "ddl/shared_buffer.hpp"

namespace ddl::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t least_bytes = 16;
constexpr std::size_t most_bytes = std::size_t{4} << 20;
constexpr double most_seconds = 1;
constexpr double seconds_of_a_size = 1e-3;
constexpr int least_repetitions = 3;
constexpr int most_repetitions = 31;
constexpr double clearly_faster = 0.95;
/// Large buffers that malloc gives begin at the same place of a page, or this much apart, which some
/// processors copy much slower (`copy_bytes`).
constexpr std::size_t shift = 16;

double median(std::span<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Calls a function both ways, and compares the times.
class Trial {
 public:
  Trial(collectives::CommunicatorImpl& engine, MPI_Comm communicator, const Context& context)
      : engine_(engine), communicator_(communicator), private_(all_bytes) {
    if (ProgramMemory::of_process().obstacle().empty()) shared_ = allocate_bytes(context, all_bytes);
    use(private_.data());
    // So that the memory for copies is mapped and the way of copying is chosen: else small calls look slow.
    each_ = most_bytes / as_index(engine_.size()) / sizeof(float);
    for (int i = 0; i < 4 && each_ != 0; ++i) by_engine(Function::allgather);
  }

  [[nodiscard]] bool engine_is_faster(Function function, std::size_t bytes) {
    const auto ranks = as_index(engine_.size());
    each_ = std::max<std::size_t>(bytes / ranks / sizeof(float), 1);
    all_ = std::max(bytes / sizeof(float), std::size_t{1});
    if (each_ * ranks * sizeof(float) > most_bytes) return true;  // has too many ranks
    // The memory that a program's buffers of this size come to be in.
    const bool is_shared = shared_.size() != 0 && bytes >= ProgramMemory::of_process().least_block();
    use(is_shared ? shared_.data() : private_.data());
    for (int warm_up = 0; warm_up < 2; ++warm_up) {
      by_engine(function);
      by_mpi(function);
    }
    times_ = {time(&Trial::by_engine, function), time(&Trial::by_mpi, function)};
    agree();
    const auto repetitions = static_cast<std::size_t>(std::clamp(
        seconds_of_a_size / (times_[0] + times_[1]), double{least_repetitions}, double{most_repetitions}));
    times_.resize(2 * repetitions);
    for (std::size_t i = 0; i < repetitions; ++i) {
      times_[i] = time(&Trial::by_engine, function);
      times_[repetitions + i] = time(&Trial::by_mpi, function);
    }
    agree();
    const std::span<double> times = times_;
    return median(times.first(repetitions)) <= clearly_faster * median(times.last(repetitions));
  }

  /// Seconds that the timed calls took so far. The same on all ranks.
  [[nodiscard]] double spent() const noexcept { return spent_; }

 private:
  static constexpr std::size_t all_bytes = 2 * most_bytes + shift;

  void use(std::byte* memory) noexcept {
    in_ = memory;
    to_ = memory + most_bytes;
  }

  /// Seconds of two calls.
  double time(void (Trial::*call)(Function), Function function) {
    double seconds = 0;
    for (const std::size_t begin : {std::size_t{0}, shift}) {
      to_ = in_ + most_bytes + begin;
      PMPI_Barrier(communicator_);
      const Clock::time_point start = Clock::now();
      (this->*call)(function);
      seconds += std::chrono::duration<double>(Clock::now() - start).count();
    }
    return seconds;
  }

  /// The slowest rank's times.
  void agree() {
    PMPI_Allreduce(MPI_IN_PLACE, times_.data(), static_cast<int>(times_.size()), MPI_DOUBLE, MPI_MAX,
                   communicator_);
    spent_ = std::accumulate(times_.begin(), times_.end(), spent_);
  }

  void by_engine(Function function) {
    const collectives::Place place = engine_.place();
    switch (function) {
      case Function::allreduce:
        return engine_.run(collectives::all_reduce_request(in_, to_, all_, DataType::f32, ReduceOp::sum));
      case Function::bcast:
        return engine_.run(collectives::broadcast_request(place, in_, in_, all_, DataType::f32, 0));
      case Function::reduce_scatter:
      case Function::reduce_scatter_block:
        return engine_.run(
            collectives::reduce_scatter_request(place, in_, to_, each_, DataType::f32, ReduceOp::sum));
      case Function::allgather:
        return engine_.run(collectives::all_gather_request(place, in_, to_, each_, DataType::f32));
      case Function::reduce:
        return engine_.run(
            collectives::reduce_request(place, in_, to_, all_, DataType::f32, ReduceOp::sum, 0));
    }
  }

  void by_mpi(Function function) {
    const int each = static_cast<int>(each_);
    const int all = static_cast<int>(all_);
    switch (function) {
      case Function::allreduce:
        PMPI_Allreduce(in_, to_, all, MPI_FLOAT, MPI_SUM, communicator_);
        break;
      case Function::bcast:
        PMPI_Bcast(in_, all, MPI_FLOAT, 0, communicator_);
        break;
      case Function::reduce_scatter:
      case Function::reduce_scatter_block:
        PMPI_Reduce_scatter_block(in_, to_, each, MPI_FLOAT, MPI_SUM, communicator_);
        break;
      case Function::allgather:
        PMPI_Allgather(in_, each, MPI_FLOAT, to_, each, MPI_FLOAT, communicator_);
        break;
      case Function::reduce:
        PMPI_Reduce(in_, to_, all, MPI_FLOAT, MPI_SUM, 0, communicator_);
        break;
    }
  }

  collectives::CommunicatorImpl& engine_;
  MPI_Comm communicator_;
  std::vector<std::byte> private_;
  SharedBuffer<std::byte> shared_;
  std::byte* in_ = nullptr;
  std::byte* to_ = nullptr;
  std::size_t each_ = 0;  // elements of a rank's piece
  std::size_t all_ = 0;
  std::vector<double> times_;  // of the engine, then of MPI
  double spent_ = 0;
};

}  // namespace

ServedSizes ServedSizes::all() noexcept {
  ServedSizes sizes;
  sizes.by_function_.fill(~std::uint64_t{0});
  return sizes;
}

ServedSizes ServedSizes::measured(collectives::CommunicatorImpl& engine, MPI_Comm communicator,
                                  const Context& context) {
  Trial trial(engine, communicator, context);
  ServedSizes sizes;
  sizes.by_function_.fill(1);  // what has no bytes needs no MPI
  // Of two sizes tried, each stands for those that are nearer to it; the first and last for all beyond.
  std::uint64_t widths = ~std::uint64_t{1};
  for (std::size_t bytes = least_bytes; bytes <= most_bytes; bytes *= 4) {
    for (const Function function : {Function::allreduce, Function::bcast, Function::reduce_scatter_block,
                                    Function::allgather, Function::reduce}) {
      if (trial.spent() > most_seconds) return sizes;
      std::uint64_t& served = sizes.by_function_[as_index(function)];
      served = (served & ~widths) | (trial.engine_is_faster(function, bytes) ? widths : 0);
    }
    sizes.by_function_[as_index(Function::reduce_scatter)] =
        sizes.by_function_[as_index(Function::reduce_scatter_block)];
    widths = ~std::uint64_t{0} << (std::bit_width(bytes) + 1);
  }
  return sizes;
}

}  // namespace ddl::mpi
