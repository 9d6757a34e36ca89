#include "collectives/watch/fork_guard.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <utility>

namespace ddl::collectives {
namespace {

/// Of the process: fork has no other way to say what is to be done.
struct Guarded {
  std::mutex mutex;
  std::set<int> descriptors;
};

Guarded& guarded() {
  static Guarded* const all = [] {
    auto* made = new Guarded;  // for ever: children may be forked while the process ends
    pthread_atfork([] { guarded().mutex.lock(); }, [] { guarded().mutex.unlock(); },
                   [] {
                     for (const int descriptor : guarded().descriptors) close(descriptor);
                     guarded().descriptors.clear();
                     guarded().mutex.unlock();
                   });
    return made;
  }();
  return *all;
}

}  // namespace

ForkGuard::ForkGuard(int descriptor) : descriptor_(descriptor) {
  Guarded& all = guarded();
  const std::lock_guard lock(all.mutex);
  all.descriptors.insert(descriptor);
}

ForkGuard::ForkGuard(ForkGuard&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

ForkGuard& ForkGuard::operator=(ForkGuard&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

ForkGuard::~ForkGuard() {
  if (descriptor_ < 0) return;
  Guarded& all = guarded();
  const std::lock_guard lock(all.mutex);
  all.descriptors.erase(descriptor_);
}

}  // namespace ddl::collectives
