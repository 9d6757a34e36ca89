#include "nmt_example/data/encoding.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <thread>
#include <type_traits>

#include "ddl/error.hpp"
#include "ddl/hash.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;
using ddl::Error;
using ddl::ErrorCode;

constexpr std::size_t block_pairs = 4096;

/// Takes the ids of encoded pairs.
using TakeIds = std::function<void(std::span<const std::int32_t> ids)>;

struct Block {
  std::vector<std::string> source, target;
  std::vector<std::vector<std::int32_t>> source_ids, target_ids;
  std::size_t pairs = 0;

  Block() : source(block_pairs), target(block_pairs), source_ids(block_pairs), target_ids(block_pairs) {}

  /// Fills it with at most so many pairs.
  void read(const NextPair& next, std::size_t most) {
    for (pairs = 0; pairs < std::min(most, block_pairs); ++pairs)
      if (!next(source[pairs], target[pairs])) break;
  }
  void encode(const Vocabulary& source_vocabulary, const Vocabulary& target_vocabulary, int threads) {
    std::atomic<std::size_t> taken = 0;
    const auto work = [&] {
      constexpr std::size_t at_once = 64;
      for (std::size_t begin = 0; (begin = taken.fetch_add(at_once)) < pairs;) {
        for (std::size_t i = begin; i < std::min(begin + at_once, pairs); ++i) {
          source_ids[i] = source_vocabulary.encode(source[i]);
          target_ids[i] = target_vocabulary.encode(target[i]);
        }
      }
    };
    std::vector<std::jthread> others;
    for (int thread = 1; thread < threads && pairs > block_pairs / 4; ++thread) others.emplace_back(work);
    work();
  }
};

std::uint64_t unknown_in(std::span<const std::int32_t> ids) {
  return static_cast<std::uint64_t>(std::ranges::count(ids, Vocabulary::unk_id));
}

void note_lengths(DatasetFacts& facts, const DatasetFacts::Lengths& pair) {
  auto& uneven = facts.uneven;
  if (pair.ratio() <= uneven.back().ratio()) return;
  uneven.back() = pair;
  std::ranges::stable_sort(uneven, std::ranges::greater(), &DatasetFacts::Lengths::ratio);
}

/// Encodes all pairs. Returns where the samples' sides end.
std::vector<std::uint64_t> encode_pairs(const NextPair& next, const Vocabulary& source,
                                        const Vocabulary& target, const EncodingSettings& settings,
                                        const TakeIds& take, DatasetFacts& facts) {
  const std::size_t most =
      settings.most_pairs > 0 ? settings.most_pairs : std::numeric_limits<std::size_t>::max();
  if (settings.source_max_len > 0 && settings.target_max_len > 0)
    facts.max_len = std::max(settings.source_max_len, settings.target_max_len);
  std::vector<std::uint64_t> ends;
  ddl::Fnv hash;
  std::uint64_t end = 0, line = 0;
  const auto add = [&](const std::vector<std::int32_t>& ids) {
    take(ids);
    for (const std::int32_t id : ids) hash.add(static_cast<std::uint32_t>(id));
    hash.add(0xffffffff);
    ends.push_back(end += ids.size());
  };
  Block block;
  do {
    block.read(next, most - line);
    block.encode(source, target, settings.threads);
    for (std::size_t i = 0; i < block.pairs; ++i) {
      ++line;
      std::vector<std::int32_t>& from = block.source_ids[i];
      std::vector<std::int32_t>& to = block.target_ids[i];
      if (from.empty() || to.empty()) {
        ++(from.empty() ? facts.empty_source : facts.empty_target);
        continue;
      }
      note_lengths(facts,
                   {line, static_cast<std::uint32_t>(from.size()), static_cast<std::uint32_t>(to.size())});
      const bool cut_source = settings.source_max_len != 0 && source.cut(from, settings.source_max_len);
      const bool cut_target = settings.target_max_len != 0 && target.cut(to, settings.target_max_len);
      if (cut_source || cut_target) ++facts.cut;
      ++facts.pairs;
      facts.source_tokens += from.size();
      facts.target_tokens += to.size();
      facts.unknown_source += unknown_in(from);
      facts.unknown_target += unknown_in(to);
      facts.longest_source = std::max<std::uint64_t>(facts.longest_source, from.size());
      facts.longest_target = std::max<std::uint64_t>(facts.longest_target, to.size());
      add(from);
      add(to);
    }
  } while (block.pairs == block_pairs);
  facts.hash = hash.value();
  if (facts.pairs == 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("none of the {} sentence pairs has text on both sides", line));
  }
  if (facts.pairs > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} sentence pairs are too many; sample numbers have 31 bits", facts.pairs));
  }
  return ends;
}

// The file: a page with `Head`, `ends` of the samples' sides, and their ids.

constexpr std::size_t head_bytes = 4096;

struct Head {
  char magic[16] = "ddl_nmt data 1";
  std::uint64_t key = 0;
  std::uint64_t tokens = 0;
  std::uint64_t hash = 0;  ///< Of the ends and of `facts`, which has that of the ids.
  DatasetFacts facts;
};
static_assert(std::is_trivially_copyable_v<Head> && sizeof(Head) <= head_bytes);

std::uint64_t hash_of(std::span<const std::uint64_t> ends, const DatasetFacts& facts) {
  static_assert(std::has_unique_object_representations_v<DatasetFacts> && sizeof(facts) % 8 == 0);
  ddl::Fnv hash;
  for (const std::uint64_t end : ends) hash.add(end);
  for (const std::uint64_t word : std::bit_cast<std::array<std::uint64_t, sizeof(facts) / 8>>(facts))
    hash.add(word);
  return hash.value();
}

std::uint64_t hash_of(const std::string& bytes) {
  ddl::Fnv hash;
  for (const char byte : bytes) hash.add(static_cast<unsigned char>(byte));
  return hash.value();
}

/// By words of 8 bytes, because texts may be large.
std::uint64_t hash_of_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::vector<std::uint64_t> block(1 << 17);
  ddl::Fnv hash;
  while (stream) {
    block.back() = 0;
    stream.read(reinterpret_cast<char*>(block.data()), static_cast<std::streamsize>(8 * block.size()));
    const auto got = static_cast<std::size_t>(stream.gcount());
    std::memset(reinterpret_cast<char*>(block.data()) + got, 0, 8 * block.size() - got);
    for (std::size_t word = 0; word < (got + 7) / 8; ++word) hash.add(block[word]);
    hash.add(got);
  }
  if (stream.bad() || !stream.eof())
    throw Error(ErrorCode::io, fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  return hash.value();
}

/// A file that appears under its name when it is complete.
class NewFile {
 public:
  explicit NewFile(fs::path path)
      : path_(std::move(path)), unfinished_(path_.string() + ".XXXXXX"), file_(nullptr) {
    const int fd = ::mkostemp(unfinished_.data(), O_CLOEXEC);
    if (fd < 0) fail();
    file_ = ::fdopen(fd, "w");
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    ::unlink(unfinished_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
  }
  void seek(std::size_t position) {
    if (std::fseek(file_, static_cast<long>(position), SEEK_SET) != 0) fail();
  }
  void finish() {
    if (std::fflush(file_) != 0 || ::fchmod(::fileno(file_), 0644) != 0 || ::fsync(::fileno(file_)) != 0 ||
        std::rename(unfinished_.c_str(), path_.c_str()) != 0)
      fail();
    std::fclose(std::exchange(file_, nullptr));
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::io, fmt::format("{}: the encoded text cannot be written: {}", path_.string(),
                                           std::strerror(errno)));
  }

  fs::path path_;
  std::string unfinished_;
  std::FILE* file_;
};

struct Mapping {
  const std::byte* bytes;
  std::size_t size;
  Mapping(const std::byte* bytes_, std::size_t size_) : bytes(bytes_), size(size_) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(const_cast<std::byte*>(bytes), size); }
};

std::shared_ptr<const Mapping> map_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat status {};
  void* bytes = MAP_FAILED;
  if (::fstat(fd, &status) == 0 && status.st_size >= static_cast<off_t>(head_bytes))
    bytes = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (bytes == MAP_FAILED) return nullptr;
  return std::make_shared<const Mapping>(static_cast<const std::byte*>(bytes),
                                         static_cast<std::size_t>(status.st_size));
}

}  // namespace

Dataset encode(const NextPair& next, const Vocabulary& source, const Vocabulary& target,
               const EncodingSettings& settings) {
  struct Arrays {
    std::vector<std::int32_t> ids;
    std::vector<std::uint64_t> ends;
  };
  const auto arrays = std::make_shared<Arrays>();
  DatasetFacts facts;
  arrays->ends = encode_pairs(
      next, source, target, settings,
      [&](std::span<const std::int32_t> ids) {
        arrays->ids.insert(arrays->ids.end(), ids.begin(), ids.end());
      },
      facts);
  return {arrays, arrays->ids, arrays->ends, facts};
}

Dataset encode(const ParallelText& text, const Vocabulary& source, const Vocabulary& target,
               std::size_t source_max_len, std::size_t target_max_len) {
  if (text.source.size() != text.target.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} source and {} target sentences; expected as many of each", text.source.size(),
                            text.target.size()));
  }
  return encode(pairs_of(text), source, target, {source_max_len, target_max_len});
}

void encode_to_file(const fs::path& path, std::uint64_t key, const NextPair& next, const Vocabulary& source,
                    const Vocabulary& target, const EncodingSettings& settings) {
  NewFile file(path);
  Head head;
  head.key = key;
  file.seek(head_bytes);
  std::vector<std::int32_t> waiting;
  const auto flush = [&] {
    file.write(std::as_bytes(std::span(waiting)));
    head.tokens += waiting.size();
    waiting.clear();
  };
  const std::vector<std::uint64_t> ends = encode_pairs(
      next, source, target, settings,
      [&](std::span<const std::int32_t> ids) {
        waiting.insert(waiting.end(), ids.begin(), ids.end());
        if (waiting.size() >= (std::size_t{1} << 20)) flush();
      },
      head.facts);
  if ((head.tokens + waiting.size()) % 2 == 1) waiting.push_back(0);  // what follows is 8 bytes each
  flush();
  file.write(std::as_bytes(std::span(ends)));
  head.hash = hash_of(ends, head.facts);
  file.seek(0);
  file.write(std::as_bytes(std::span(&head, 1)));
  file.finish();
}

std::uint64_t hash_of_text(const fs::path& source, const fs::path& target) {
  ddl::Fnv hash;
  for (const fs::path& path : {source, target}) hash.add_number(hash_of_file(path));
  return hash.value();
}

std::uint64_t encoding_key(std::uint64_t text_hash, const Vocabulary& source, const Vocabulary& target,
                           const EncodingSettings& settings) {
  ddl::Fnv key;
  for (const std::uint64_t part :
       {text_hash, hash_of(source.serialize()), hash_of(target.serialize()),
        std::uint64_t{settings.source_max_len}, std::uint64_t{settings.target_max_len},
        std::uint64_t{settings.most_pairs}})
    key.add_number(part);
  return key.value();
}

std::optional<Dataset> map_dataset(const fs::path& path, std::uint64_t key, bool check) {
  const std::shared_ptr<const Mapping> mapping = map_file(path);
  if (mapping == nullptr) return {};
  Head head;
  std::memcpy(&head, mapping->bytes, sizeof(head));
  const std::uint64_t sides = 2 * head.facts.pairs;
  if (std::memcmp(head.magic, Head().magic, sizeof(head.magic)) != 0 || head.key != key ||
      head.tokens > mapping->size || head.tokens % 2 == 1 || head.facts.pairs == 0 ||
      head.facts.pairs > mapping->size || mapping->size != head_bytes + 4 * head.tokens + 8 * sides)
    return {};
  const std::span ids(reinterpret_cast<const std::int32_t*>(mapping->bytes + head_bytes),
                      head.facts.source_tokens + head.facts.target_tokens);
  const std::span ends(reinterpret_cast<const std::uint64_t*>(mapping->bytes + head_bytes + 4 * head.tokens),
                       sides);
  if (check) {
    if (ids.size() > head.tokens || hash_of(ends, head.facts) != head.hash || ends.back() != ids.size() ||
        !std::ranges::is_sorted(ends))
      return {};
    ddl::Fnv hash;
    std::size_t at = 0;
    for (const std::uint64_t end : ends) {
      for (; at < end; ++at) hash.add(static_cast<std::uint32_t>(ids[at]));
      hash.add(0xffffffff);
    }
    if (hash.value() != head.facts.hash) return {};
  }
  return Dataset(mapping, ids, ends, head.facts);
}

}  // namespace nmt
