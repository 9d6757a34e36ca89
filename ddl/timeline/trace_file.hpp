#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "collectives/communicator/communicator_impl.hpp"

namespace ddl {

/// Throws `invalid_argument` if no file can be written there. An empty name asks for nothing.
void require_writable_trace(const std::string& name);

/// The name of one rank's own part: "trace.rank3.json" for "trace.json".
std::filesystem::path part_of_trace(const std::filesystem::path& name, int rank);

/// Rank 0 writes a trace of all ranks' texts. Collective. Throws `io` on rank 0, once all texts have come.
void write_trace(collectives::CommunicatorImpl& communicator, const std::string& name, std::string_view text);
/// A trace of one rank's text.
void write_trace_alone(const std::filesystem::path& name, std::string_view text);

}  // namespace ddl
