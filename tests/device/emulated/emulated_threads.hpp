#pragma once

#include <functional>

/// The host's threads on which devices run.
namespace emulated_cuda {

/// Runs the job on a thread of its own, as it may wait for others. Threads are kept for later jobs.
void run_on_thread(std::function<void()> job);
/// Tells that the calling job is about to end: its thread takes the next job that it adds.
void end_job_soon();

/// Runs the job after those before it, on the one thread that CUDA has for host functions.
void run_host_function(std::function<void()> job);
/// Whether this is that thread: host functions must not call CUDA.
bool is_in_host_function();

}  // namespace emulated_cuda
