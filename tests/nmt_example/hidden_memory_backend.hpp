#pragma once

#include <memory>

#include "nmt_example/backend/backend.hpp"

namespace nmt::test {

/// The CPU backend with memory that the host cannot access, like a device's: outside of the backend's
/// operations, every access to memory that it has allocated ends the program (SIGSEGV).
std::unique_ptr<Backend> make_hidden_memory_backend();

}  // namespace nmt::test
