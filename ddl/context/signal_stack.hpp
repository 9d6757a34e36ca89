#pragma once

namespace ddl {

/// Gives the calling thread an alternate signal stack, unless it has one; handlers installed with SA_ONSTACK
/// run there. Kernels of math libraries (oneDNN's AVX-512 sgemm) point the stack pointer into the heap, where
/// a handler's frame would overwrite other data. The kernel delivers a process's signals to its main thread
/// first.
void ensure_signal_stack();

}  // namespace ddl
