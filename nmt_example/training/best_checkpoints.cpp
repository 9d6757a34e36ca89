#include "nmt_example/training/best_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/error.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;

void copy_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const fs::path target = to / entry.path().filename();
    std::error_code error;
    fs::create_hard_link(entry.path(), target, error);
    if (error) fs::copy_file(entry.path(), target);
  }
}

}  // namespace

std::vector<fs::path> complete_checkpoints(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.find_first_not_of("0123456789", 5) == std::string::npos &&
        fs::exists(entry.path() / "manifest.json")) {
      found.push_back(entry.path());
    }
  }
  // Step numbers have leading zeros.
  std::ranges::sort(found, [](const fs::path& a, const fs::path& b) {
    const std::string left = a.filename().string();
    const std::string right = b.filename().string();
    return left.size() != right.size() ? left.size() < right.size() : left < right;
  });
  return found;
}

void keep_only(const fs::path& checkpoint, const fs::path& keeper) try {
  const fs::path kept = keeper / checkpoint.filename();
  if (!fs::exists(kept / "manifest.json")) {
    const fs::path unfinished = keeper / "unfinished";
    fs::remove_all(unfinished);
    fs::create_directories(unfinished);
    copy_files(checkpoint, unfinished);
    fs::remove_all(kept);
    fs::rename(unfinished, kept);
  }
  for (const fs::path& other : complete_checkpoints(keeper)) {
    if (other != kept) fs::remove_all(other);
  }
} catch (const fs::filesystem_error& error) {
  throw ddl::Error(ddl::ErrorCode::io,
                   fmt::format("the best checkpoint {} cannot be kept in {}: {}", checkpoint.string(),
                               keeper.string(), error.code().message()));
}

}  // namespace nmt
