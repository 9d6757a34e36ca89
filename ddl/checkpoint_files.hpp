#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/durable_file.hpp"

namespace ddl {

/// A safetensors file's contents.
struct TensorFile {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};
using TensorFiles = std::map<std::string, TensorFile>;

/// By file name.
using FileSummaries = std::map<std::string, FileSummary>;

/// Writes and syncs files, and their names in the directory. Throws `io`, and `invalid_argument` for two
/// tensors of a name.
FileSummaries write_files(const std::filesystem::path& directory, const TensorFiles& tensors,
                          const std::map<std::string, std::string>& texts);

/// For other ranks, and from them.
std::string summaries_to_text(const FileSummaries& files);
FileSummaries summaries_from_text(const std::string& text);

}  // namespace ddl
