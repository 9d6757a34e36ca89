#include "ddl/checkpoint/checkpoint_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <system_error>
#include <utility>

#include "topology/text.hpp"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step-";
constexpr std::string_view temporary_prefix = ".tmp-step-";
constexpr std::string_view replaced_prefix = ".replaced-step-";

std::string name_of(std::string_view prefix, std::uint64_t step) {
  return fmt::format("{}{:010}", prefix, step);
}

/// The step in a directory's name, unless the name differs from what name_of gives for that step.
std::optional<std::uint64_t> step_of(std::string_view prefix, const std::string& name) {
  if (!name.starts_with(prefix)) return {};
  const auto step = parse_whole<std::uint64_t>(std::string_view(name).substr(prefix.size()));
  return step && name == name_of(prefix, *step) ? step : std::nullopt;
}

bool is_present(const fs::path& path) {
  std::error_code error;
  const bool found = fs::exists(fs::symlink_status(path, error));
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw_io("inspect", path, error.value());
  return found;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator at(directory, error);
  // A path that does not exist, or whose parent is not a directory, has no entries.
  if (error && !is_present(directory)) return names;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) throw_io("list", directory, error.value());
  return names;
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_io("rename to", to, errno);
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw_io("remove", path, error.value());
}

bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

/// The manifest of a checkpoint; nothing if it is damaged or of another format.
std::optional<CheckpointManifest> manifest_of(const fs::path& checkpoint, std::uint64_t step) {
  try {
    CheckpointManifest manifest = CheckpointManifest::read(checkpoint);
    if (manifest.step == step) return manifest;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;
  }
  return {};
}

}  // namespace

fs::path CheckpointDirectory::path_of(std::uint64_t step) const {
  return directory_ / name_of(step_prefix, step);
}

fs::path CheckpointDirectory::temporary_of(std::uint64_t step) const {
  return directory_ / name_of(temporary_prefix, step);
}

std::vector<std::uint64_t> CheckpointDirectory::steps() const {
  std::vector<std::uint64_t> steps;
  for (const std::string& name : names_in(directory_)) {
    if (const auto step = step_of(step_prefix, name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::vector<std::uint64_t> CheckpointDirectory::best_steps() const {
  std::vector<std::pair<double, std::uint64_t>> found;
  for (const std::uint64_t step : steps()) {
    const auto manifest = manifest_of(path_of(step), step);
    if (manifest && manifest->metric) found.emplace_back(-*manifest->metric, step);
  }
  std::ranges::sort(found);
  std::vector<std::uint64_t> steps;
  for (const auto& [metric, step] : found) steps.push_back(step);
  return steps;
}

/// Removes temporary directories. A checkpoint whose replacement was interrupted gets its name back.
void CheckpointDirectory::clean_up() const {
  for (const std::string& name : names_in(directory_)) {
    if (step_of(temporary_prefix, name)) remove_tree(directory_ / name);
    if (const auto step = step_of(replaced_prefix, name)) {
      if (is_present(path_of(*step))) {
        remove_tree(directory_ / name);
      } else {
        rename_path(directory_ / name, path_of(*step));
      }
    }
  }
}

void CheckpointDirectory::prepare(std::uint64_t step) const {
  make_directories(directory_);
  clean_up();
  const fs::path temporary = temporary_of(step);
  if (::mkdir(temporary.c_str(), 0777) != 0) throw_io("make directory", temporary, errno);
}

void CheckpointDirectory::publish(std::uint64_t step) const {
  const fs::path temporary = temporary_of(step);
  const fs::path target = path_of(step);
  const fs::path replaced = directory_ / name_of(replaced_prefix, step);
  if (!is_present(target)) {
    rename_path(temporary, target);
  } else if (exchange(temporary, target)) {
    remove_tree(temporary);
  } else {
    rename_path(target, replaced);
    try {
      rename_path(temporary, target);
    } catch (const Error&) {
      rename_path(replaced, target);
      throw;
    }
    remove_tree(replaced);
  }
  sync_directory(directory_);
}

void CheckpointDirectory::discard(std::uint64_t step) const noexcept {
  std::error_code ignored;
  fs::remove_all(temporary_of(step), ignored);
}

void CheckpointDirectory::remove_old(std::uint64_t step, std::size_t keep, std::size_t keep_best) const {
  const std::vector<std::uint64_t> all = steps();
  if (keep == 0 || all.size() <= keep) return;
  std::vector<std::uint64_t> whole;
  for (const std::uint64_t other : all) {
    if (other != step && manifest_of(path_of(other), other)) whole.push_back(other);
  }
  std::set<std::uint64_t> best;
  if (keep_best > 0) {
    const std::vector<std::uint64_t> order = best_steps();
    best.insert(order.begin(),
                order.begin() + static_cast<std::ptrdiff_t>(std::min(keep_best, order.size())));
  }
  for (std::size_t i = 0; i + (keep - 1) < whole.size(); ++i) {
    if (best.contains(whole[i])) continue;
    // Renames the checkpoint first, so that a crash cannot leave a partly removed one under its name.
    const fs::path doomed = temporary_of(whole[i]);
    rename_path(path_of(whole[i]), doomed);
    remove_tree(doomed);
  }
}

FileSummaries write_files(const std::filesystem::path& directory, const TensorFiles& tensors,
                          const std::map<std::string, std::string>& texts) {
  FileSummaries written;
  for (const auto& [name, contents] : tensors) {
    safetensors::check(contents.tensors);
    FileWriter file(directory / name);
    safetensors::write(file, contents.tensors, contents.metadata);
    written[name] = file.finish();
  }
  for (const auto& [name, text] : texts) {
    FileWriter file(directory / name);
    file.write(text);
    written[name] = file.finish();
  }
  sync_directory(directory);
  return written;
}

}  // namespace ddl
