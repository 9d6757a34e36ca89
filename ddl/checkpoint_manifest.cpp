#include "ddl/checkpoint_manifest.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "ddl/error.hpp"

namespace ddl {
namespace {

using nlohmann::json;

constexpr std::uint64_t format_version = 1;
constexpr std::uint64_t largest_manifest = std::uint64_t{16} << 20;

std::string hex(std::uint32_t checksum) { return fmt::format("{:08x}", checksum); }

/// CRC-32 of the compact form with sorted keys, which is what json::dump gives.
std::string checksum_of(json manifest) {
  manifest.erase("checksum");
  FileSummary summary;
  const std::string text = manifest.dump();
  summary.add(std::as_bytes(std::span(text)));
  return hex(summary.crc32);
}

bool has_unsigned(const json& object, const char* key) {
  return object.contains(key) && object[key].is_number_unsigned();
}

bool has_text(const json& object, const char* key) { return object.contains(key) && object[key].is_string(); }

}  // namespace

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::string CheckpointManifest::to_json() const {
  json manifest = {{"format_version", format_version}, {"step", step}, {"files", json::object()}};
  for (const auto& [name, summary] : files) {
    manifest["files"][name] = {{"bytes", summary.bytes}, {"crc32", hex(summary.crc32)}};
  }
  manifest["checksum"] = checksum_of(manifest);
  return manifest.dump(2) + "\n";
}

CheckpointManifest CheckpointManifest::read(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / manifest_name;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) {
    throw_corrupt(path, "no such file", "the manifest that every complete checkpoint has");
  }
  const FileReader file(path);
  if (file.size() > largest_manifest) {
    throw_corrupt(path, fmt::format("{} bytes", file.size()), fmt::format("at most {}", largest_manifest));
  }
  const std::string text = file.read_all();
  const json manifest = json::parse(text, nullptr, false);
  if (!manifest.is_object()) {
    throw_corrupt(path, fmt::format("{} bytes that are no JSON object", text.size()), "a manifest");
  }
  if (!has_unsigned(manifest, "format_version")) throw_corrupt(path, "no format_version", "a number");
  const auto version = manifest["format_version"].get<std::uint64_t>();
  if (version > format_version) {
    throw Error(ErrorCode::unsupported,
                fmt::format("'{}': found format version {}, expected at most {}: the checkpoint was written "
                            "by a newer version of ddl; use that one to read it",
                            path.string(), version, format_version));
  }
  if (!has_text(manifest, "checksum")) throw_corrupt(path, "no checksum", "8 hexadecimal digits");
  const std::string expected = checksum_of(manifest);
  if (const auto& found = manifest["checksum"].get_ref<const std::string&>(); found != expected) {
    throw_corrupt(path, "checksum " + found.substr(0, 16), expected + " (CRC-32 of its contents)");
  }

  CheckpointManifest result;
  if (!has_unsigned(manifest, "step")) throw_corrupt(path, "no step", "a number");
  result.step = manifest["step"].get<std::uint64_t>();
  if (!manifest.contains("files") || !manifest["files"].is_object()) {
    throw_corrupt(path, "no files", "an object of file names");
  }
  for (const auto& [name, entry] : manifest["files"].items()) {
    std::uint32_t crc32 = 0;
    const bool whole = is_plain_file_name(name) && has_unsigned(entry, "bytes") && has_text(entry, "crc32");
    if (whole) {
      const auto& digits = entry["crc32"].get_ref<const std::string&>();
      if (digits.size() == 8 && digits.find_first_not_of("0123456789abcdef") == std::string::npos) {
        crc32 = static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16));
        result.files[name] = {entry["bytes"].get<std::uint64_t>(), crc32};
        continue;
      }
    }
    throw_corrupt(path, fmt::format("a bad entry for file '{}'", name), "a file name, bytes and crc32");
  }
  return result;
}

void CheckpointManifest::verify(const std::filesystem::path& checkpoint) const {
  for (const auto& [name, expected] : files) {
    const std::filesystem::path path = checkpoint / name;
    std::error_code error;
    if (!std::filesystem::exists(path, error) && !error) {
      throw_corrupt(path, "no such file", fmt::format("{} bytes, as the manifest says", expected.bytes));
    }
    const FileReader file(path);
    if (file.size() != expected.bytes) {
      throw_corrupt(path, fmt::format("{} bytes", file.size()),
                    fmt::format("{}, as the manifest says", expected.bytes));
    }
    if (const FileSummary found = file.summary(); found != expected) {
      throw_corrupt(path, "CRC-32 " + hex(found.crc32), hex(expected.crc32) + ", as the manifest says");
    }
  }
}

}  // namespace ddl
