#pragma once

#include <functional>

/// The threads of a block as fibers of one host thread, which switch where they wait.
namespace emulated_cuda {

/// Calls body(0) to body(threads - 1) on fibers: one that has waited shares its fiber with none that begins
/// after that. Returns when all have ended or, if the device is lost, when all of them wait. The fibers are
/// then abandoned, so they must own nothing.
void run_fibers(int device, int threads, const std::function<void(int thread)>& body);

// To be called on fibers.

/// Waits until all other fibers that have not ended have arrived.
void sync_fibers();
/// Lets the other fibers run; yields to other blocks if all fibers pause.
void pause_fiber();
/// Lets the other fibers run, on which it waits.
void step_fiber();

}  // namespace emulated_cuda
