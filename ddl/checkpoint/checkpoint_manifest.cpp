#include "ddl/checkpoint/checkpoint_manifest.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "topology/json_text.hpp"
#include "topology/refuse.hpp"

namespace ddl {
namespace {

using nlohmann::json;

constexpr std::uint64_t format_version = 2;
constexpr std::uint64_t largest_manifest = std::uint64_t{64} << 20;
constexpr std::uint64_t most_ranks = std::uint64_t{1} << 24;
constexpr std::string_view checksum_key = "\"checksum\": \"";
constexpr std::string_view no_checksum = "00000000";

std::string hex(std::uint32_t checksum) { return fmt::format("{:08x}", checksum); }

std::string crc_of(std::string_view text) {
  FileSummary summary;
  summary.add(std::as_bytes(std::span(text)));
  return hex(summary.crc32);
}

json files_to_json(const FileSummaries& files) {
  json result = json::object();
  for (const auto& [name, summary] : files)
    result[name] = {{"bytes", summary.bytes}, {"crc32", hex(summary.crc32)}};
  return result;
}

json group_to_json(const CheckpointLayout::Group& group) {
  json result = {{"tensors", json::object()}, {"per_rank", json::array()}};
  for (const auto& [name, tensor] : group.tensors) {
    json& value = result["tensors"][name] = safetensors::to_json(tensor.form);
    for (const TensorPiece& piece : tensor.pieces) {
      value["pieces"].push_back({piece.rank, piece.first, piece.count});
    }
  }
  for (const auto& tensors : group.per_rank) {
    json& forms = result["per_rank"].emplace_back(json::object());
    for (const auto& [name, form] : tensors) forms[name] = safetensors::to_json(form);
  }
  return result;
}

/// Parses a manifest. Throws `corrupt_data` for anything that the format does not allow.
class Parser {
 public:
  explicit Parser(std::filesystem::path path) : path_(std::move(path)) {}

  CheckpointManifest parse(const json& manifest) const {
    CheckpointManifest result;
    result.step = number(manifest, "step", UINT64_MAX);
    if (const json& metric = member(manifest, "metric"); !metric.is_null()) {
      if (!metric.is_number() || !std::isfinite(metric.get<double>())) fail("a metric that is no number");
      result.metric = metric.get<double>();
    }
    result.layout.ranks = static_cast<int>(number(manifest, "ranks", most_ranks));
    if (result.layout.ranks < 1) fail("a bad number of ranks");
    result.layout.sharded = member<bool>(manifest, "sharded");
    result.files = files(member(manifest, "files"));
    for (const auto& [name, value] : member<json::object_t>(manifest, "groups"))
      result.layout.groups[name] = group(name, value, result);
    if (!result.files.contains(state_name)) fail(fmt::format("no entry for {}", state_name));
    return result;
  }

  FileSummaries files(const json& value) const {
    FileSummaries result;
    for (const auto& [name, entry] : as<json::object_t>(value, "list of files"))
      result[name] = file(name, entry);
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& found) const {
    throw_corrupt(path_, found, "what a manifest of this format has");
  }

  /// `what`: the name of the value in messages.
  template <typename T>
  const T& as(const json& value, const std::string& what) const {
    if (const T* const found = value.get_ptr<const T*>()) return *found;
    fail("a bad " + what);
  }
  const json& member(const json& value, const char* key) const {
    if (!value.is_object() || !value.contains(key)) fail(fmt::format("no {}", key));
    return value[key];
  }
  template <typename T>
  const T& member(const json& value, const char* key) const {
    return as<T>(member(value, key), key);
  }
  std::uint64_t number(const json& value, std::uint64_t most, const char* what) const {
    const std::uint64_t found = as<json::number_unsigned_t>(value, what);
    if (found > most) fail(fmt::format("a bad {}", what));
    return found;
  }
  std::uint64_t number(const json& value, const char* key, std::uint64_t most) const {
    return number(member(value, key), most, key);
  }

  FileSummary file(const std::string& name, const json& entry) const {
    const auto& digits = member<json::string_t>(entry, "crc32");
    FileSummary result{number(entry, "bytes", INT64_MAX), 0};
    const char* const end = digits.data() + digits.size();
    if (!is_plain_file_name(name) || std::from_chars(digits.data(), end, result.crc32, 16).ptr != end ||
        digits != hex(result.crc32)) {
      fail(fmt::format("a bad entry for file {}", topology::in_quotes(name)));
    }
    return result;
  }

  TensorForm form(const json& value) const {
    return safetensors::parse_form(value, [&](std::string_view found, std::string_view expected) {
      throw_corrupt(path_, found, expected);
    });
  }

  void require_file(const std::string& name, const CheckpointManifest& manifest) const {
    if (!manifest.files.contains(name)) fail(fmt::format("no entry for file {}", topology::in_quotes(name)));
  }

  CheckpointLayout::Tensor tensor(const std::string& group, const json& value,
                                  const CheckpointManifest& manifest) const {
    CheckpointLayout::Tensor result{form(value), {}};
    const auto last_rank = static_cast<std::uint64_t>(manifest.layout.ranks - 1);
    std::uint64_t end = 0;
    const auto& pieces = member<json::array_t>(value, "pieces");
    if (pieces.empty()) fail("a tensor without pieces");
    for (const json& piece : pieces) {
      if (as<json::array_t>(piece, "piece").size() != 3) fail("a piece that is not [rank, first, count]");
      result.pieces.push_back({static_cast<int>(number(piece[0], last_rank, "rank of a piece")),
                               number(piece[1], INT64_MAX, "begin of a piece"),
                               number(piece[2], INT64_MAX, "size of a piece")});
      if (result.pieces.back().first != end) fail("pieces that overlap or leave a gap");
      end = result.pieces.back().end();
      require_file(manifest.layout.file_of(group, result.pieces.back()), manifest);
    }
    if (end != result.form.elements()) fail("pieces that are not the whole tensor");
    return result;
  }

  CheckpointLayout::Group group(const std::string& name, const json& value,
                                const CheckpointManifest& manifest) const {
    CheckpointLayout::Group result;
    for (const auto& [tensor_name, entry] : member<json::object_t>(value, "tensors"))
      result.tensors[tensor_name] = tensor(name, entry, manifest);
    const auto& per_rank = member<json::array_t>(value, "per_rank");
    const auto ranks = as_index(manifest.layout.ranks);
    if (!per_rank.empty() && per_rank.size() != ranks) fail("a bad list of ranks");
    for (const json& forms : per_rank) {
      const auto rank = static_cast<int>(result.per_rank.size());
      auto& tensors = result.per_rank.emplace_back();
      for (const auto& [tensor_name, entry] : as<json::object_t>(forms, "list of a rank's tensors"))
        tensors[tensor_name] = form(entry);
      if (!tensors.empty()) require_file(manifest.layout.rank_file(name, rank), manifest);
    }
    return result;
  }

  std::filesystem::path path_;
};

void check_checksum(const std::filesystem::path& path, std::string text) {
  const std::size_t key = text.find(checksum_key);
  if (key == std::string::npos || text.size() - key < checksum_key.size() + no_checksum.size()) {
    throw_corrupt(path, fmt::format("{} bytes without a checksum", text.size()), "a manifest");
  }
  const std::size_t begin = key + checksum_key.size();
  const std::string found = text.substr(begin, no_checksum.size());
  text.replace(begin, no_checksum.size(), no_checksum);
  if (const std::string expected = crc_of(text); found != expected) {
    throw_corrupt(path,
                  fmt::format("checksum {}", json(found).dump(-1, ' ', true, json::error_handler_t::replace)),
                  expected + ", the CRC-32 of its contents");
  }
}

}  // namespace

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::string to_json(const FileSummaries& files) { return files_to_json(files).dump(); }

FileSummaries parse_files(const std::string& text) { return Parser("a rank").files(json::parse(text)); }

std::string CheckpointManifest::to_json() const {
  json manifest = {{"format_version", format_version},
                   {"checksum", no_checksum},
                   {"step", step},
                   {"metric", metric ? json(*metric) : json()},
                   {"ranks", layout.ranks},
                   {"sharded", layout.sharded},
                   {"files", files_to_json(files)},
                   {"groups", json::object()}};
  for (const auto& [name, group] : layout.groups) manifest["groups"][name] = group_to_json(group);
  std::string text = manifest.dump(1) + "\n";
  const std::size_t digits = text.find(checksum_key) + checksum_key.size();
  return text.replace(digits, no_checksum.size(), crc_of(text));
}

std::string CheckpointManifest::read_text(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / manifest_name;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) {
    throw_corrupt(path, "no such file", "the manifest that every complete checkpoint has");
  }
  return read_file(path, largest_manifest, fmt::format("at most {}", largest_manifest));
}

CheckpointManifest CheckpointManifest::parse(const std::filesystem::path& checkpoint,
                                             const std::string& text) {
  const std::filesystem::path path = checkpoint / manifest_name;
  check_checksum(path, text);
  const json manifest = json::parse(text, nullptr, false);
  if (!manifest.is_object() || !manifest.contains("format_version") ||
      !manifest["format_version"].is_number_unsigned()) {
    throw_corrupt(path, "no JSON object with a format_version", "a manifest");
  }
  const auto version = manifest["format_version"].get<std::uint64_t>();
  if (version != format_version) {
    fail_with(ErrorCode::unsupported,
              "'{}': found format version {}, expected {}: the checkpoint was written by {} version of "
              "ddl; use that one to read it",
              path.string(), version, format_version, version > format_version ? "a newer" : "an older");
  }
  return Parser(path).parse(manifest);
}

CheckpointManifest CheckpointManifest::read(const std::filesystem::path& checkpoint) {
  return parse(checkpoint, read_text(checkpoint));
}

FileReader CheckpointManifest::open(const std::filesystem::path& checkpoint, const std::string& name) const {
  const std::filesystem::path path = checkpoint / name;
  const std::string expected = fmt::format("{} bytes, as the manifest says", files.at(name).bytes);
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) throw_corrupt(path, "no such file", expected);
  FileReader file(path);
  if (file.size() != files.at(name).bytes)
    throw_corrupt(path, fmt::format("{} bytes", file.size()), expected);
  return file;
}

void CheckpointManifest::verify(const std::filesystem::path& checkpoint, std::size_t index,
                                std::size_t count) const {
  std::size_t number = 0;
  for (const auto& [name, expected] : files) {
    if (number++ % count != index) continue;
    const FileReader file = open(checkpoint, name);
    if (const FileSummary found = file.summary(); found != expected) {
      throw_corrupt(file.path(), "CRC-32 " + hex(found.crc32),
                    hex(expected.crc32) + ", as the manifest says");
    }
  }
}

}  // namespace ddl
