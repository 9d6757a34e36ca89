#pragma once

#include <functional>

/// The threads of the host that run emulated devices.
namespace emulated_cuda {

/// Runs the job on its own thread, because it may wait for others. Threads are reused.
void run_on_thread(std::function<void()> job);
/// Announces that the calling job is about to end, so that its thread can take the next job that it adds.
void end_job_soon();

/// Runs the job in order on the single thread for host functions.
void run_host_function(std::function<void()> job);
/// Whether the calling thread is that thread; host functions must not call CUDA.
bool is_in_host_function();

}  // namespace emulated_cuda
