#include "nmt_example/commands/open_run.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "ddl/checkpoint.hpp"
#include "ddl/error.hpp"

namespace nmt {

SavedRun open_run(ddl::Context& context, std::string_view flag, const std::string& path) {
  const std::string where = flag.empty() ? path : fmt::format("--{}={}", flag, path);
  bool is_checkpoint = false;
  context.root_only("look for checkpoints", [&] {
    is_checkpoint = std::filesystem::exists(std::filesystem::path(path) / "manifest.json");
    if (is_checkpoint || std::filesystem::is_directory(path)) return;
    throw ddl::Error(
        ddl::ErrorCode::io,
        fmt::format("{}: there is no such directory; give that of a run, or a checkpoint", where));
  });
  if (!context.broadcast_string(is_checkpoint ? path : "").empty()) {
    return {context, ddl::SavedCheckpoint::open(context, path)};
  }
  ddl::Checkpoint checkpoints(context, path);
  if (auto newest = newest_run(context, checkpoints)) return std::move(*newest);
  throw ddl::Error(ddl::ErrorCode::io,
                   fmt::format("{}: there is no complete checkpoint in this directory", where))
      .as_agreed();
}

}  // namespace nmt
