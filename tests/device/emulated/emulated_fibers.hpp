#pragma once

#include <functional>

/// The threads of a block as fibers of one host thread: they take turns where they wait.
namespace emulated_cuda {

/// Calls body(0) to body(threads - 1), each on a fiber. Returns when all have ended; or, if the device is
/// lost, once all of them wait: then they are left where they are, so they must own nothing.
void run_fibers(int device, int threads, const std::function<void(int thread)>& body);

// For fibers.

/// Waits until all others that have not ended have come.
void sync_fibers();
/// Lets the others go on, and gives way to other blocks when all do this.
void pause_fiber();

}  // namespace emulated_cuda
