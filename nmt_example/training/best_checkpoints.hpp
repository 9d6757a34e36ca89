#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace nmt {

/// The complete checkpoints in a directory, from the oldest to the newest; none if there is no such
/// directory. Their contents are not looked at.
std::vector<std::filesystem::path> complete_checkpoints(const std::filesystem::path& directory);

/// Makes `keeper` hold a copy of checkpoint `checkpoint` and no other; its files are hard links where the
/// file system has them, which takes no space. Does nothing if `keeper` already has a checkpoint of that
/// name. For one rank. Throws `io`.
void keep_only(const std::filesystem::path& checkpoint, const std::filesystem::path& keeper);

}  // namespace nmt
