#include "nmt_example/data/embedding_vectors.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ddl/error.hpp"
#include "nmt_example/text/utf8.hpp"

namespace nmt {
namespace {

/// Takes the next entry off the line; empty at its end.
std::string_view next_entry(std::string_view& line) {
  const std::size_t begin = line.find_first_not_of(" \t\r");
  line.remove_prefix(begin == std::string_view::npos ? line.size() : begin);
  const std::string_view entry = line.substr(0, line.find_first_of(" \t\r"));
  line.remove_prefix(entry.size());
  return entry;
}

[[noreturn]] void damaged(const std::filesystem::path& path, const std::string& what) {
  throw ddl::Error(ddl::ErrorCode::corrupt_data, fmt::format("{}: {}", path.string(), what));
}

}  // namespace

EmbeddingVectors read_embedding_vectors(const std::filesystem::path& path, const Vocabulary& vocabulary) {
  std::unordered_map<std::string, std::size_t> missing;
  const auto words = static_cast<std::int64_t>(vocabulary.size()) - EmbeddingVectors::first_id;
  for (std::int64_t w = 0; w < words; ++w) {
    missing.emplace(vocabulary.piece(static_cast<std::int32_t>(EmbeddingVectors::first_id + w)), w);
  }
  std::ifstream file(path);
  if (!file) throw ddl::Error(ddl::ErrorCode::io, fmt::format("{}: cannot be read", path.string()));
  EmbeddingVectors vectors;
  std::vector<float> vector;
  std::size_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    std::string_view line = text;
    const std::string word(next_entry(line));
    vector.clear();
    for (std::string_view entry = next_entry(line); !entry.empty(); entry = next_entry(line)) {
      float value = 0;
      const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), value);
      if (error != std::errc() || end != entry.data() + entry.size() || !std::isfinite(value)) {
        damaged(path, fmt::format("line {}: expected a word and its numbers, found '{}'", number,
                                  printable(entry)));
      }
      vector.push_back(value);
    }
    if (word.empty() || (number == 1 && vector.size() == 1)) continue;
    const auto found = missing.find(word);
    if (found == missing.end()) continue;
    if (vectors.size == 0) {
      vectors.size = static_cast<std::int64_t>(vector.size());
      vectors.values.resize(static_cast<std::size_t>(words * vectors.size));
    }
    if (vector.empty() || static_cast<std::int64_t>(vector.size()) != vectors.size) {
      damaged(path, fmt::format("line {}: a vector of {} numbers, expected {} as before", number,
                                vector.size(), vectors.size));
    }
    std::copy(vector.begin(), vector.end(),
              vectors.values.begin() + static_cast<std::ptrdiff_t>(found->second * vector.size()));
    missing.erase(found);
  }
  if (!missing.empty()) {
    damaged(path, fmt::format("no vector for {} of the vocabulary's {} words, for instance '{}'",
                              missing.size(), words, printable(missing.begin()->first)));
  }
  return vectors;
}

}  // namespace nmt
