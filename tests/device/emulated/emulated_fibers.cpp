#include "device/emulated/emulated_fibers.hpp"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "device/emulated/emulated_cuda.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define EMULATED_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define EMULATED_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATED_ASAN 1
#elif __has_feature(thread_sanitizer)
#define EMULATED_TSAN 1
#endif
#endif

#ifdef EMULATED_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMULATED_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace emulated_cuda {
namespace {

namespace context = boost::context::detail;

#if defined(EMULATED_ASAN) || defined(EMULATED_TSAN)
constexpr std::size_t stack_bytes = std::size_t{128} << 10;
#else
constexpr std::size_t stack_bytes = std::size_t{32} << 10;
#endif
/// Chosen so that stacks begin in different cache lines.
constexpr std::size_t stride_bytes = stack_bytes + 192;

/// The stacks of a block's fibers. Untouched pages take no memory.
class Stacks {
 public:
  explicit Stacks(std::size_t count) : bytes_(count * stride_bytes) {
    memory_ =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks() { munmap(memory_, bytes_); }

  [[nodiscard]] std::byte* bottom(std::size_t fiber) const {
    return static_cast<std::byte*>(memory_) + fiber * stride_bytes;
  }
  [[nodiscard]] bool are_enough_for(std::size_t fibers) const { return fibers * stride_bytes <= bytes_; }
  /// Removes AddressSanitizer's marks of abandoned fibers.
  void clear() const {
#ifdef EMULATED_ASAN
    __asan_unpoison_memory_region(memory_, bytes_);
#endif
  }

 private:
  std::size_t bytes_;
  void* memory_;
};
using StacksPointer = std::unique_ptr<Stacks>;

/// Reuses stacks for later blocks. Never destroyed, because threads may outlive main.
class StackPool {
 public:
  static StackPool& get() {
    static auto* const pool = new StackPool;
    return *pool;
  }
  StacksPointer take(std::size_t fibers) {
    {
      const std::lock_guard lock(mutex_);
      while (!unused_.empty()) {
        StacksPointer stacks = std::move(unused_.back());
        unused_.pop_back();
        if (stacks->are_enough_for(fibers)) return stacks;
      }
    }
    return std::make_unique<Stacks>(fibers);
  }
  void give_back(StacksPointer stacks) {
    stacks->clear();
    const std::lock_guard lock(mutex_);
    unused_.push_back(std::move(stacks));
  }

 private:
  std::mutex mutex_;
  std::vector<StacksPointer> unused_;
};

/// The fibers of one block. ThreadSanitizer takes them for one thread: it finds races with other blocks, but
/// not between fibers of a block.
class Fibers {
 public:
  Fibers(int count, const std::function<void(int)>& body)
      : body_(body), count_(count), stacks_(StackPool::get().take(static_cast<std::size_t>(count))) {}
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  ~Fibers() { StackPool::get().give_back(std::move(stacks_)); }

  void run(int device) {
    Patience patience;
    while (!ready_.empty() || next_ < count_) {
      if (take_turns()) {
        patience = {};
        continue;
      }
      if (is_lost(device)) return;
      patience.pause();
    }
  }

  enum class State { paused, stepped, waiting, ended };
  /// Called on a fiber: lets the others run.
  void leave(State state) {
    said_ = state;
#ifdef EMULATED_ASAN
    void* own = nullptr;
    __sanitizer_start_switch_fiber(state == State::ended ? nullptr : &own, host_stack_, host_stack_bytes_);
#endif
    host_ = context::jump_fcontext(host_, nullptr).fctx;
#ifdef EMULATED_ASAN
    __sanitizer_finish_switch_fiber(own, &host_stack_, &host_stack_bytes_);
#endif
  }

  static thread_local Fibers* current;

 private:
  static constexpr int together = 32;
  static constexpr int most_steps = 16;

  /// Runs the fibers that do not wait, and starts fibers until all threads have begun; returns whether any
  /// did more than pause.
  bool take_turns() {
    has_progress_ = false;
    std::vector<std::size_t> kept, group;
    for (std::size_t i = 0; i < ready_.size() || next_ < count_;) {
      group.clear();
      bool has_stepped = false;
      for (int taken = 0; taken < together && (i < ready_.size() || next_ < count_); ++taken, ++i) {
        if (i == ready_.size()) start_fiber();
        has_stepped |= take_turn(ready_[i], group);
      }
      // A lane waits for its neighbours, so they take more turns while the caches hold them.
      for (int time = 0; time < most_steps && has_stepped; ++time) {
        has_stepped = false;
        std::vector<std::size_t> again;
        for (const std::size_t fiber : group) has_stepped |= take_turn(fiber, again);
        std::swap(group, again);
      }
      kept.insert(kept.end(), group.begin(), group.end());
    }
    std::swap(ready_, kept);
    if (ready_.empty()) std::swap(ready_, waiting_);
    return has_progress_;
  }

  /// Returns whether the fiber has stepped. Appends it to `kept` if it neither waits nor has ended.
  bool take_turn(std::size_t fiber, std::vector<std::size_t>& kept) {
    resume(fiber);
    has_progress_ |= said_ != State::paused;
    if (said_ == State::paused || said_ == State::stepped) kept.push_back(fiber);
    if (said_ == State::waiting) waiting_.push_back(fiber);
    return said_ == State::stepped;
  }

  void start_fiber() {
    const std::size_t fiber = fibers_.size();
    fibers_.push_back(context::make_fcontext(stacks_->bottom(fiber) + stack_bytes, stack_bytes, enter));
    ready_.push_back(fiber);
  }

  void resume(std::size_t fiber) {
#ifdef EMULATED_ASAN
    void* own = nullptr;
    __sanitizer_start_switch_fiber(&own, stacks_->bottom(fiber), stack_bytes);
#endif
    fibers_[fiber] = context::jump_fcontext(fibers_[fiber], this).fctx;
#ifdef EMULATED_ASAN
    __sanitizer_finish_switch_fiber(own, nullptr, nullptr);
#endif
  }

  static void enter(context::transfer_t from) noexcept {
    auto& fibers = *static_cast<Fibers*>(from.data);
    fibers.host_ = from.fctx;
#ifdef EMULATED_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &fibers.host_stack_, &fibers.host_stack_bytes_);
#endif
    while (fibers.next_ < fibers.count_) fibers.body_(fibers.next_++);
    fibers.leave(State::ended);
  }

  const std::function<void(int)>& body_;
  int count_;
  int next_ = 0;                             // the next thread to begin
  std::vector<context::fcontext_t> fibers_;  // where each resumes
  std::vector<std::size_t> ready_, waiting_;
  context::fcontext_t host_ = nullptr;  // where the host's thread resumes
  State said_ = State::paused;
  bool has_progress_ = false;
  StacksPointer stacks_;
#ifdef EMULATED_ASAN
  const void* host_stack_ = nullptr;
  std::size_t host_stack_bytes_ = 0;
#endif
};

thread_local Fibers* Fibers::current = nullptr;

}  // namespace

void run_fibers(int device, int threads, const std::function<void(int thread)>& body) {
#ifdef EMULATED_TSAN
  void* const host = __tsan_get_current_fiber();
  void* const own = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(own, 0);
#endif
  {
    Fibers fibers(threads, body);
    Fibers::current = &fibers;
    fibers.run(device);
    Fibers::current = nullptr;
  }
#ifdef EMULATED_TSAN
  __tsan_switch_to_fiber(host, 0);
  __tsan_destroy_fiber(own);
#endif
}

void sync_fibers() { Fibers::current->leave(Fibers::State::waiting); }
void pause_fiber() { Fibers::current->leave(Fibers::State::paused); }
void step_fiber() { Fibers::current->leave(Fibers::State::stepped); }

}  // namespace emulated_cuda
