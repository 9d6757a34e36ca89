#include "ddl/checkpoint_files.hpp"

#include <nlohmann/json.hpp>

#include "ddl/safetensors.hpp"

namespace ddl {

using nlohmann::json;

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

std::string summaries_to_text(const FileSummaries& files) {
  json result = json::object();
  for (const auto& [name, summary] : files) result[name] = {summary.bytes, summary.crc32};
  return result.dump();
}

FileSummaries summaries_from_text(const std::string& text) {
  FileSummaries files;
  const json written = json::parse(text);
  for (const auto& [name, summary] : written.items()) {
    files[name] = {summary[0].get<std::uint64_t>(), summary[1].get<std::uint32_t>()};
  }
  return files;
}

}  // namespace ddl
