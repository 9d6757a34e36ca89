#pragma once

#include <signal.h>

namespace ddl {

/// Gives the calling thread an alternate signal stack, unless it has one; handlers of `handle_signal` run
/// there. Kernels of math libraries (oneDNN's AVX-512 sgemm) point the stack pointer into the heap, where
/// a handler's frame would overwrite other data. The kernel delivers a process's signals to its main thread
/// first.
void ensure_signal_stack();

/// Installs a handler and returns the one before it. Throws `internal` if the system refuses.
struct sigaction handle_signal(int signal, void (*handler)(int));

/// Returns an eventfd that is signalled whenever this process gets SIGUSR2; -1 if the program has its own
/// handler for it, or if the system refuses. Any thread; the handler stays for the life of the process.
int flight_dump_event();

}  // namespace ddl
