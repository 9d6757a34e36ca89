#pragma once

#include <cstddef>

// What a build of the library offers to `compare_builds`, which loads several of them into one process. In C,
// for their types are not each other's.
extern "C" {

/// A context from the environment, and a buffer of so many bytes. MPI has been initialised. Null: why is on
/// standard error.
void* comparable_open(std::size_t bytes);
/// After a barrier, so many all-reduces of the buffer in place, fp32: ns each. Less than 0: why not is on
/// standard error.
double comparable_time(void* opened, std::size_t calls);
/// With the other ranks.
void comparable_close(void* opened);
}
