#pragma once

#include <memory>

#include "nmt_example/backend/backend.hpp"

namespace nmt::test {

/// The CPU backend behind memory that the host cannot touch, like a device's: outside of the backend's own
/// operations every access to what it allocated ends the program (SIGSEGV).
std::unique_ptr<Backend> make_hidden_memory_backend();

}  // namespace nmt::test
