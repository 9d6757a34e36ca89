// Calls of the C interface with arbitrary arguments, in arbitrary order.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "ddl/ddl.h"
#include "fuzz/reader.hpp"

namespace ddl::fuzz {
namespace {

/// Makes arguments of bytes; of zeros after their end.
class Arguments {
 public:
  explicit Arguments(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool done() const noexcept { return bytes_.empty(); }
  int byte() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(1);
    return value;
  }
  /// Numbers from 0 to `below`, and a few that are wrong everywhere.
  std::int64_t number(std::int64_t below) {
    constexpr std::array<std::int64_t, 6> odd = {-1, INT64_MIN, INT64_MAX, INT32_MAX, std::int64_t{1} << 61,
                                                 255};
    const int chosen = byte();
    return chosen < 250 ? chosen % (below + 1) : odd[static_cast<std::size_t>(chosen - 250)];
  }
  int small(int below) { return static_cast<int>(number(below)); }

 private:
  std::string_view bytes_;
};

/// The objects that calls work on; each call gets one of them, null, or the address of something else.
class Program {
 public:
  explicit Program(std::string_view bytes) : arguments_(bytes) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].values = values_[i].data();
      parameters_[i].count = elements;
      parameters_[i].type = DDL_F32;
      parameters_[i].gradient = gradients_[i].data();
    }
  }
  Program& operator=(Program&&) = delete;
  ~Program() {
    for (ddl_work* work : works_) ddl_wait(work);
    for (ddl_checkpoint* checkpoint : checkpoints_) ddl_checkpoint_free(checkpoint);
    for (ddl_reducer* reducer : reducers_) ddl_reducer_free(reducer);
    for (ddl_sampler* sampler : samplers_) ddl_sampler_free(sampler);
    for (void* memory : allocated_) ddl_free(memory);
    std::filesystem::remove_all(directory());
  }

  /// Returns how many calls succeeded.
  int run() {
    int succeeded = 0;
    for (int calls = 0; calls < 40 && !arguments_.done(); ++calls) {
      const int error = call();
      require(error >= DDL_OK && error <= DDL_NOT_INITIALIZED, "error " + std::to_string(error));
      require(error != DDL_INTERNAL, std::string("internal error: ") + ddl_error_message());
      require(error == DDL_OK || *ddl_error_message() != '\0', "an error without a message");
      require(*ddl_error_name(error) != '\0', "an error without a name");
      if (error == DDL_OK) ++succeeded;
    }
    return succeeded;
  }

 private:
  static constexpr std::int64_t elements = 64;

  static const std::string& directory() {
    static const std::string of_process =
        (std::filesystem::temp_directory_path() / ("ddl_fuzz_" + std::to_string(getpid()))).string();
    return of_process;
  }

  void* data() {
    const int chosen = arguments_.byte() % 5;
    return chosen == 0 ? nullptr
                       : static_cast<void*>(values_[static_cast<std::size_t>(chosen - 1) % 3].data());
  }
  /// Elements of the widest type that fit `data`, or a wrong number if there is no memory.
  std::int64_t count(const void* memory) {
    const std::int64_t found = arguments_.number(elements / 2);
    return memory == nullptr ? found : std::min(found, elements / 2);
  }
  int type() { return arguments_.small(7); }
  int op() { return arguments_.small(5); }

  template <typename T>
  T* one_of(const std::vector<T*>& handles) {
    const int chosen = arguments_.byte();
    if (chosen >= 240) return reinterpret_cast<T*>(values_[0].data());
    if (chosen >= 220 || handles.empty()) return nullptr;
    return handles[static_cast<std::size_t>(chosen) % handles.size()];
  }
  template <typename T>
  static int keep(int error, std::vector<T*>& handles, T* made) {
    require((error == DDL_OK) == (made != nullptr), "a handle and an error, or neither");
    if (made != nullptr) handles.push_back(made);
    return error;
  }
  template <typename T>
  static int drop(int error, std::vector<T*>& handles, T* handle) {
    std::erase(handles, handle);
    return error;
  }

  const ddl_parameter* parameters() { return arguments_.byte() == 255 ? nullptr : parameters_.data(); }
  int parameter_count(const ddl_parameter* given) {
    const int found = arguments_.small(static_cast<int>(parameters_.size()));
    return given == nullptr ? found : std::min(found, static_cast<int>(parameters_.size()));
  }

  /// Changes a parameter in a way that a careless caller might.
  void change_parameter() {
    ddl_parameter& parameter = parameters_[static_cast<std::size_t>(arguments_.byte()) % parameters_.size()];
    switch (arguments_.byte() % 8) {
      case 0:
        parameter.name = arguments_.byte() % 2 == 0 ? nullptr : "a";
        break;
      case 1:
        parameter.values = data();
        break;
      case 2:
        parameter.gradient = arguments_.byte() % 2 == 0 ? nullptr : gradients_[0].data();
        break;
      case 3:
        parameter.count = std::min(arguments_.number(elements / 2), elements / 2);
        break;
      case 4:
        parameter.type = type();
        break;
      case 5:
        parameter.gradient_type = type();
        break;
      case 6:
        parameter.row_width = arguments_.number(9);
        break;
      default:
        parameter.summands = arguments_.byte() % 2 == 0 ? nullptr : summands_.data();
        parameter.summand_count = std::min(arguments_.small(2), static_cast<int>(summands_.size()));
    }
  }

  int call() {
    switch (arguments_.byte() % 34) {
      case 0: {
        void* memory = nullptr;
        const auto alignment = static_cast<std::size_t>(arguments_.number(64));
        const int error = ddl_malloc(arguments_.byte() == 255 ? nullptr : &memory, alignment,
                                     static_cast<std::size_t>(arguments_.number(200)));
        if (memory != nullptr) allocated_.push_back(memory);
        return error;
      }
      case 1: {
        void* const memory = one_of(allocated_);
        return drop(ddl_free(memory), allocated_, memory);
      }
      case 2: {
        void* const memory = data();
        const auto n = count(memory);
        const int kind = type();
        return ddl_all_reduce(memory, n, kind, op());
      }
      case 3: {
        void* const memory = data();
        const auto n = count(memory);
        const int kind = type();
        return ddl_broadcast(memory, n, kind, arguments_.small(2));
      }
      case 4: {
        void* const input = data();
        void* const output = data();
        const auto n = count(input == nullptr ? input : output);
        const int kind = type();
        return ddl_reduce_scatter(input, output, n, kind, op());
      }
      case 5: {
        void* const input = data();
        void* const output = data();
        const auto n = count(input == nullptr ? input : output);
        return ddl_all_gather(input, output, n, type());
      }
      case 6: {
        void* const memory = data();
        const auto n = count(memory);
        const int kind = type();
        const int with = op();
        return ddl_reduce(memory, n, kind, with, arguments_.small(2));
      }
      case 7:
        return ddl_barrier();
      case 8: {
        void* const memory = data();
        const auto n = count(memory);
        const int kind = type();
        ddl_work* work = nullptr;
        const int error =
            ddl_all_reduce_start(memory, n, kind, op(), arguments_.byte() == 255 ? nullptr : &work);
        if (work != nullptr) works_.push_back(work);
        return error;
      }
      case 9: {
        void* const memory = data();
        const auto n = count(memory);
        const int kind = type();
        ddl_work* work = nullptr;
        const int error = ddl_broadcast_start(memory, n, kind, arguments_.small(1), &work);
        return keep(error, works_, work);
      }
      case 10: {
        int done = 0;
        ddl_work* const work = one_of(works_);
        return ddl_test(work, arguments_.byte() == 255 ? nullptr : &done);
      }
      case 11: {
        ddl_work* const work = one_of(works_);
        return drop(ddl_wait(work), works_, work);
      }
      case 12: {
        const ddl_parameter* const given = parameters();
        const int n = parameter_count(given);
        return ddl_broadcast_parameters(given, n, arguments_.small(1));
      }
      case 13: {
        const ddl_parameter* const given = parameters();
        return ddl_check_same(given, parameter_count(given));
      }
      case 14: {
        const ddl_parameter* const given = parameters();
        const int n = parameter_count(given);
        ddl_reducer_options options{};
        options.gradients = arguments_.small(3);
        options.bucket_bytes = arguments_.number(200);
        options.wire = type();
        const int flags = arguments_.byte();
        options.after_backward = flags & 1;
        options.leave_sums = flags >> 1 & 1;
        options.on_device = (flags & 0xc) == 0xc ? 1 : 0;
        options.micro_batches = flags >> 4 & 1;
        options.broadcast_values = flags >> 5 & 1;
        options.narrow_sums = flags >> 6 & 1;
        if (reducers_.size() > 3) return DDL_OK;
        ddl_reducer* reducer = nullptr;
        const int error = ddl_reducer_create(given, n, flags == 255 ? nullptr : &options, &reducer);
        return keep(error, reducers_, reducer);
      }
      case 15: {
        ddl_reducer* const reducer = one_of(reducers_);
        const ddl_parameter* const given = parameters();
        return ddl_reducer_rebind(reducer, given, parameter_count(given));
      }
      case 16:
        return ddl_reducer_begin(one_of(reducers_), weight());
      case 17: {
        ddl_reducer* const reducer = one_of(reducers_);
        return ddl_reducer_ready(reducer, arguments_.small(4));
      }
      case 18: {
        ddl_reducer* const reducer = one_of(reducers_);
        const int index = arguments_.small(4);
        const std::array<std::int32_t, 3> rows = {arguments_.small(8), arguments_.small(8),
                                                  arguments_.small(8)};
        const auto n = arguments_.number(3);
        const bool is_null = arguments_.byte() == 255;
        return ddl_reducer_ready_rows(reducer, index, is_null ? nullptr : rows.data(),
                                      is_null ? n : std::min<std::int64_t>(n, 3));
      }
      case 19: {
        ddl_reducer* const reducer = one_of(reducers_);
        return ddl_reducer_absent(reducer, arguments_.small(4));
      }
      case 20: {
        ddl_step step{};
        ddl_reducer* const reducer = one_of(reducers_);
        const double with = weight();
        return ddl_reducer_wait(reducer, with, arguments_.byte() == 255 ? nullptr : &step);
      }
      case 21: {
        ddl_reducer* const reducer = one_of(reducers_);
        return ddl_reducer_no_sync(reducer, arguments_.small(2));
      }
      case 22: {
        int has_value = 0;
        ddl_reducer* const reducer = one_of(reducers_);
        const int index = arguments_.small(4);
        return ddl_reducer_has_gradient(reducer, index, arguments_.byte() == 255 ? nullptr : &has_value);
      }
      case 23: {
        // Checkpoints use their reducers.
        if (!checkpoints_.empty()) return DDL_OK;
        ddl_reducer* const reducer = one_of(reducers_);
        return drop(ddl_reducer_free(reducer), reducers_, reducer);
      }
      case 24: {
        const auto size = arguments_.number(100);
        const auto batch = arguments_.number(20);
        ddl_sampler* sampler = nullptr;
        if (size > 1000 || samplers_.size() > 3) return DDL_OK;  // takes memory for all samples
        const int error = ddl_sampler_create(size, batch, static_cast<std::uint64_t>(arguments_.byte()),
                                             arguments_.small(2), &sampler);
        return keep(error, samplers_, sampler);
      }
      case 25: {
        const std::size_t* samples = nullptr;
        std::size_t n = 0;
        ddl_sampler* const sampler = one_of(samplers_);
        const int error = ddl_sampler_next(sampler, arguments_.byte() == 255 ? nullptr : &samples, &n);
        if (error == DDL_OK) {
          require(std::all_of(samples, samples + n, [](std::size_t i) { return i < 1000; }), "no sample");
        }
        return error;
      }
      case 26: {
        std::int64_t steps = 0;
        ddl_sampler* const sampler = one_of(samplers_);
        return ddl_sampler_steps_per_epoch(sampler, arguments_.byte() == 255 ? nullptr : &steps);
      }
      case 27: {
        if (!checkpoints_.empty()) return DDL_OK;
        ddl_sampler* const sampler = one_of(samplers_);
        return drop(ddl_sampler_free(sampler), samplers_, sampler);
      }
      case 28: {
        double scaled = 0;
        const double rate = weight();
        const int rule = arguments_.small(3);
        const auto step = arguments_.number(9);
        return ddl_learning_rate(rate, rule, step, arguments_.number(9),
                                 arguments_.byte() == 255 ? nullptr : &scaled);
      }
      case 29: {
        if (!checkpoints_.empty()) return DDL_OK;
        const bool is_null = arguments_.byte() == 255;
        const int kept = arguments_.small(3);
        ddl_reducer* const reducer = one_of(reducers_);
        ddl_checkpoint* checkpoint = nullptr;
        const int error = ddl_checkpoint_create(is_null ? nullptr : directory().c_str(), kept, 0, reducer,
                                                one_of(samplers_), &checkpoint);
        return keep(error, checkpoints_, checkpoint);
      }
      case 30: {
        ddl_checkpoint* const checkpoint = one_of(checkpoints_);
        const auto step = arguments_.number(9);
        const ddl_parameter* const given = parameters();
        return ddl_checkpoint_save(checkpoint, step, given, parameter_count(given));
      }
      case 31: {
        ddl_checkpoint* const checkpoint = one_of(checkpoints_);
        std::int64_t step = 0;
        const ddl_parameter* const given = parameters();
        const int n = parameter_count(given);
        return ddl_checkpoint_restore(checkpoint, given, n, arguments_.byte() == 255 ? nullptr : &step);
      }
      case 32: {
        if (ddl_root_begin(arguments_.byte() % 2 == 0 ? nullptr : "name") == 0) return ddl_root_end(nullptr);
        return ddl_root_end(arguments_.byte() % 2 == 0 ? nullptr : "problem");
      }
      default:
        change_parameter();
        return DDL_OK;
    }
  }

  double weight() {
    constexpr std::array<double, 6> weights = {0, 1, 2.5, -1, 1e300, __builtin_nan("")};
    return weights[static_cast<std::size_t>(arguments_.byte()) % weights.size()];
  }

  Arguments arguments_;
  // Twice as many floats as elements, so that 64-bit types fit, too.
  std::array<std::array<float, 2 * elements>, 4> values_{};
  std::array<std::array<float, 2 * elements>, 4> gradients_{};
  std::array<std::array<float, 2 * elements>, 2> summand_memory_{};
  std::array<void*, 2> summands_ = {summand_memory_[0].data(), summand_memory_[1].data()};
  std::array<ddl_parameter, 4> parameters_{};
  std::vector<void*> allocated_;
  std::vector<ddl_work*> works_;
  std::vector<ddl_reducer*> reducers_;
  std::vector<ddl_sampler*> samplers_;
  std::vector<ddl_checkpoint*> checkpoints_;
};

bool takes_calls(std::string_view bytes) {
  static const int started = [] {
    setenv("WORLD_SIZE", "1", 1);
    setenv("RANK", "0", 1);
    return ddl_init("");
  }();
  require(started == DDL_OK, ddl_error_message());
  Program program(bytes);
  return program.run() > 0;
}

}  // namespace

std::span<const Reader> readers() {
  static constexpr std::array all = {Reader{"c_calls", takes_calls}};
  return all;
}

}  // namespace ddl::fuzz
