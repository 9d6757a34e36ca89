#include "ddl/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "ddl/checkpoint_manifest.hpp"
#include "ddl/durable_file.hpp"
#include "ddl/error.hpp"
#include "ddl/safetensors.hpp"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr const char* state_name = "state.json";
constexpr std::string_view step_prefix = "step-";
constexpr std::string_view temporary_prefix = ".tmp-step-";
constexpr std::string_view replaced_prefix = ".replaced-step-";

std::string name_of(std::string_view prefix, std::uint64_t step) {
  return fmt::format("{}{:010}", prefix, step);
}

std::string file_of(const std::string& group) { return group + ".safetensors"; }

/// The step of a directory's name, if the name is exactly what this step gives.
std::optional<std::uint64_t> step_of(std::string_view prefix, const std::string& name) {
  std::uint64_t step = 0;
  if (!name.starts_with(prefix)) return {};
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + prefix.size(), end, step);
  if (parsed.ec != std::errc{} || parsed.ptr != end || name != name_of(prefix, step)) return {};
  return step;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator at(directory, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) throw_io("list", directory, error.value());
  return names;
}

/// Steps of all directories named as checkpoints, complete or not, ascending.
std::vector<std::uint64_t> named_steps(const fs::path& directory) {
  std::vector<std::uint64_t> steps;
  for (const std::string& name : names_in(directory)) {
    if (const auto step = step_of(step_prefix, name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

/// Empty if the manifest is valid or of a newer format, else what is wrong with it.
std::optional<Error> manifest_problem(const fs::path& checkpoint, std::uint64_t step) {
  try {
    const CheckpointManifest manifest = CheckpointManifest::read(checkpoint);
    if (manifest.step != step) {
      throw_corrupt(checkpoint / manifest_name, fmt::format("step {}", manifest.step),
                    fmt::format("{}, as the directory's name says", step));
    }
    return {};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) return {};
    return error;
  }
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_io("rename to", to, errno);
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw_io("remove", path, error.value());
}

bool is_present(const fs::path& path) {
  std::error_code error;
  const bool found = fs::exists(fs::symlink_status(path, error));
  if (error && error != std::errc::no_such_file_or_directory) throw_io("inspect", path, error.value());
  return found;
}

void make_directories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (!error && !fs::is_directory(directory, error) && !error)
    error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw_io("make directory", directory, error.value());
}

/// Removes what a crash left behind; a checkpoint that was being replaced gets its name back.
void clean_up(const fs::path& directory) {
  for (const std::string& name : names_in(directory)) {
    if (step_of(temporary_prefix, name)) remove_tree(directory / name);
    if (const auto step = step_of(replaced_prefix, name)) {
      const fs::path original = directory / name_of(step_prefix, *step);
      if (is_present(original)) {
        remove_tree(directory / name);
      } else {
        rename_path(directory / name, original);
      }
    }
  }
}

bool exchange(const fs::path& a, const fs::path& b) {
#ifdef RENAME_EXCHANGE
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
#else
  static_cast<void>(a);
  static_cast<void>(b);
  return false;
#endif
}

/// Gives `temporary` its final name, in one step where the file system can.
void publish(const fs::path& temporary, const fs::path& target, const fs::path& replaced) {
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
}

[[noreturn]] void throw_invalid(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "cannot save a checkpoint: " + message);
}

void check(const CheckpointDirectory::Contents& contents) {
  std::set<std::string> names = {manifest_name, state_name};
  const auto add = [&](const std::string& name) {
    if (!is_plain_file_name(name) || !nlohmann::json::accept('"' + name + '"')) {
      throw_invalid(fmt::format("'{}' is no plain file name in UTF-8", name));
    }
    if (!names.insert(name).second) {
      throw_invalid(fmt::format("two files are called '{}'; choose another name", name));
    }
  };
  for (const auto& [group, tensors] : contents.groups) {
    if (group.empty()) throw_invalid("a group of tensors has no name");
    add(file_of(group));
    safetensors::check(tensors);
  }
  for (const auto& [name, text] : contents.files) add(name);
  if (!nlohmann::json::accept(contents.state)) throw_invalid("the state is no JSON text");
}

void write_all(const fs::path& directory, std::uint64_t step, const CheckpointDirectory::Contents& contents) {
  CheckpointManifest manifest;
  manifest.step = step;
  const auto write_text = [&](const std::string& name, std::string_view text) {
    FileWriter file(directory / name);
    file.write(text);
    return file.finish();
  };
  for (const auto& [group, tensors] : contents.groups) {
    FileWriter file(directory / file_of(group));
    safetensors::write(file, tensors);
    manifest.files[file_of(group)] = file.finish();
  }
  for (const auto& [name, text] : contents.files) manifest.files[name] = write_text(name, text);
  manifest.files[state_name] = write_text(state_name, contents.state);
  write_text(manifest_name, manifest.to_json());
  sync_directory(directory);
}

/// Which checkpoint to use instead of a damaged one.
std::string advice(const fs::path& damaged) {
  try {
    const auto step = step_of(step_prefix, damaged.filename().string());
    if (!step) return "";
    const fs::path directory = damaged.parent_path();
    std::vector<std::uint64_t> older = named_steps(directory);
    std::erase_if(older, [&](std::uint64_t other) { return other >= *step; });
    for (; !older.empty(); older.pop_back()) {
      const fs::path candidate = directory / name_of(step_prefix, older.back());
      try {
        CheckpointManifest::read(candidate).verify(candidate);
        return fmt::format(
            "; the newest older checkpoint that is whole is '{}': to go on from it, remove '{}'",
            candidate.string(), damaged.string());
      } catch (const Error&) {
        continue;
      }
    }
    return fmt::format("; no older checkpoint in '{}' is whole", directory.string());
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(fs::path directory, std::size_t keep)
    : directory_(std::move(directory)), keep_(keep) {}

fs::path CheckpointDirectory::save(std::uint64_t step, const Contents& contents) {
  check(contents);
  const fs::path temporary = directory_ / name_of(temporary_prefix, step);
  const fs::path target = path_of(step);
  make_directories(directory_);
  clean_up(directory_);
  try {
    if (::mkdir(temporary.c_str(), 0777) != 0) throw_io("make directory", temporary, errno);
    write_all(temporary, step, contents);
    publish(temporary, target, directory_ / name_of(replaced_prefix, step));
    sync_directory(directory_);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }

  if (keep_ == 0) return target;
  std::vector<std::uint64_t> others = steps();
  std::erase(others, step);
  for (std::size_t i = 0; i + (keep_ - 1) < others.size(); ++i) {
    // Renamed first, so that a crash leaves no half of a checkpoint under its name.
    const fs::path doomed = directory_ / name_of(temporary_prefix, others[i]);
    rename_path(path_of(others[i]), doomed);
    remove_tree(doomed);
  }
  return target;
}

std::vector<std::uint64_t> CheckpointDirectory::steps() const {
  std::vector<std::uint64_t> steps = named_steps(directory_);
  std::erase_if(steps, [&](std::uint64_t step) { return manifest_problem(path_of(step), step).has_value(); });
  return steps;
}

std::optional<std::uint64_t> CheckpointDirectory::newest() const {
  const std::vector<std::uint64_t> steps = named_steps(directory_);
  if (steps.empty()) return {};
  const fs::path path = path_of(steps.back());
  if (const auto problem = manifest_problem(path, steps.back())) {
    throw Error(problem->code(), problem->what() + advice(path));
  }
  return steps.back();
}

fs::path CheckpointDirectory::path_of(std::uint64_t step) const {
  return directory_ / name_of(step_prefix, step);
}

CheckpointReader::CheckpointReader(fs::path checkpoint) : path_(std::move(checkpoint)) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  std::error_code error;
  if (!fs::is_directory(path_, error)) {
    throw_io("open checkpoint", path_, error ? error.value() : is_present(path_) ? ENOTDIR : ENOENT);
  }
  try {
    const CheckpointManifest manifest = CheckpointManifest::read(path_);
    manifest.verify(path_);
    step_ = manifest.step;
    for (const auto& [name, summary] : manifest.files) files_[name] = summary.bytes;
    state_ = file(state_name);
  } catch (const Error& problem) {
    throw Error(problem.code(), problem.what() + advice(path_));
  }
}

std::string CheckpointReader::file(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) throw_corrupt(path_, "no file '" + name + "'", "one");
  const FileReader reader(path_ / name);
  if (reader.size() != found->second) {
    throw_corrupt(reader.path(), fmt::format("{} bytes", reader.size()),
                  fmt::format("{}, as the manifest says", found->second));
  }
  return reader.read_all();
}

bool CheckpointReader::has_group(const std::string& group) const { return files_.contains(file_of(group)); }

void CheckpointReader::read(const std::string& group, std::span<const NamedTensor> tensors) const {
  safetensors::check(tensors);
  if (!has_group(group)) throw_corrupt(path_, "no file '" + file_of(group) + "'", "one");
  const FileReader file(path_ / file_of(group));
  auto index = safetensors::read_index(file);
  const auto fail = [&](const std::string& name, const std::string& found, const std::string& expected) {
    throw Error(ErrorCode::mismatch,
                fmt::format("'{}': tensor '{}': found {}, expected {}: the checkpoint is of another model",
                            file.path().string(), name, found, expected));
  };
  std::vector<std::uint64_t> offsets;
  for (const NamedTensor& tensor : tensors) {
    const std::string expected = safetensors::describe(tensor.type, tensor.shape);
    const auto found = index.extract(tensor.name);
    if (!found) fail(tensor.name, "nothing", expected);
    const safetensors::Entry& entry = found.mapped();
    if (entry.type != tensor.type || entry.shape != tensor.shape) {
      fail(tensor.name, safetensors::describe(entry.type, entry.shape), expected);
    }
    offsets.push_back(entry.offset);
  }
  if (!index.empty()) {
    const auto& [name, entry] = *index.begin();
    fail(name, safetensors::describe(entry.type, entry.shape), "nothing");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) file.read_at(offsets[i], tensors[i].bytes);
}

}  // namespace ddl
