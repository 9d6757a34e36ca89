#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "nmt_example/data/dataset.hpp"
#include "nmt_example/data/parallel_text.hpp"

namespace nmt {

/// Sets both to the next pair of a text; false: there is none.
using NextPair = std::function<bool(std::string& source, std::string& target)>;

struct EncodingSettings {
  std::size_t source_max_len = 0, target_max_len = 0;  ///< Longer sides are cut; 0: no limit.
  std::size_t most_pairs = 0;                          ///< Only the first are read; 0: all.
  int threads = 1;
};

/// Encodes text in memory. Pairs with an empty side are dropped. Throws `invalid_argument` if no pair is
/// left, or with more than 2^31-1 of them.
Dataset encode(const NextPair& next, const Vocabulary& source, const Vocabulary& target,
               const EncodingSettings& settings);
/// Of a text in memory. Also throws `invalid_argument` if it has not as many sentences on both sides.
Dataset encode(const ParallelText& text, const Vocabulary& source, const Vocabulary& target,
               std::size_t source_max_len, std::size_t target_max_len);

/// The same into a file, with the memory of a few thousand pairs and of 16 bytes a pair. The file appears
/// when it is complete, and takes the place of an older one. `key` says what it was made from. Also throws
/// `io`.
void encode_to_file(const std::filesystem::path& path, std::uint64_t key, const NextPair& next,
                    const Vocabulary& source, const Vocabulary& target, const EncodingSettings& settings);
/// Of the bytes of a text's two files. Throws `io`.
std::uint64_t hash_of_text(const std::filesystem::path& source, const std::filesystem::path& target);
/// What a data set is made from: a text's hash, the vocabularies and the settings.
std::uint64_t encoding_key(std::uint64_t text_hash, const Vocabulary& source, const Vocabulary& target,
                           const EncodingSettings& settings);
/// The data set of such a file, mapped into memory; none if there is no file of this key. `check`: reads it
/// all, and gives none if it is damaged.
std::optional<Dataset> map_dataset(const std::filesystem::path& path, std::uint64_t key, bool check);

}  // namespace nmt
