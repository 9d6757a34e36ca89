#include "ddl/timeline/trace_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <exception>
#include <optional>

#include "ddl/durable_file.hpp"
#include "ddl/error.hpp"
#include "ddl/timeline/gather_texts.hpp"
#include "ddl/timeline/trace_text.hpp"

namespace ddl {

void require_writable_trace(const std::string& name) {
  if (name.empty()) return;
  try {
    if (std::error_code ignored; std::filesystem::is_directory(name, ignored))
      throw_io("write", name, EISDIR);
    const AtomicFileWriter trial(name);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("DDL_TIMELINE='{}': {}; expected a file's name in a directory that rank 0 can "
                            "write to",
                            name, error.what()));
  }
}

std::filesystem::path part_of_trace(const std::filesystem::path& name, int rank) {
  const std::string own = fmt::format("{}.rank{}{}", name.stem().string(), rank, name.extension().string());
  return name.parent_path() / own;
}

void write_trace(collectives::CommunicatorImpl& communicator, const std::string& name,
                 std::string_view text) {
  std::optional<AtomicFileWriter> file;
  std::exception_ptr problem;
  // The other ranks do not know of it, and go on.
  const auto attempt = [&](const auto& work) {
    if (problem) return;
    try {
      work();
    } catch (const Error&) {
      problem = std::current_exception();
    }
  };
  if (communicator.rank() == 0) {
    attempt([&] {
      file.emplace(name);
      file->write(trace_begin());
    });
  }
  gather_texts(communicator, text,
               [&](int, std::string_view piece) { attempt([&] { file->write(piece); }); });
  if (communicator.rank() == 0) {
    attempt([&] {
      file->write(trace_end());
      file->finish();
    });
  }
  if (problem) std::rethrow_exception(problem);
}

void write_trace_alone(const std::filesystem::path& name, std::string_view text) {
  AtomicFileWriter file(name);
  file.write(trace_begin());
  file.write(text);
  file.write(trace_end());
  file.finish();
}

}  // namespace ddl
