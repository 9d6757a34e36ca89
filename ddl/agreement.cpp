#include "ddl/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "ddl/error.hpp"

namespace ddl {
namespace {

// An entry may hold any byte, so entries are told apart by their lengths.
std::string pack(const std::vector<std::string>& entries) {
  std::string text;
  for (const std::string& entry : entries) text += fmt::format("{}:{}", entry.size(), entry);
  return text;
}

std::vector<std::string> unpack(std::string_view text) {
  std::vector<std::string> entries;
  while (!text.empty()) {
    const std::size_t colon = text.find(':');
    const std::size_t size = std::stoull(std::string(text.substr(0, colon)));
    entries.emplace_back(text.substr(colon + 1, size));
    text.remove_prefix(colon + 1 + size);
  }
  return entries;
}

std::string entry_or_nothing(const std::vector<std::string>& entries, std::size_t index) {
  return index < entries.size() ? entries[index] : fmt::format("missing ({} in all)", entries.size());
}

}  // namespace

std::optional<std::string> first_difference(Context& context, std::string_view kind,
                                            const std::vector<std::string>& entries) {
  constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::string> root = unpack(context.broadcast_string(pack(entries)));
  const auto first = std::ranges::mismatch(entries, root);
  const bool same = first.in1 == entries.end() && first.in2 == root.end();

  std::vector<std::int64_t> differences(static_cast<std::size_t>(context.size()), none);
  differences[static_cast<std::size_t>(context.rank())] = same ? none : first.in1 - entries.begin();
  context.communicator().all_reduce(std::span(differences), ReduceOp::min);
  const std::int64_t index = *std::ranges::min_element(differences);
  if (index == none) return std::nullopt;

  std::string ranks;
  int first_rank = -1;
  for (int rank = 0; rank < context.size(); ++rank) {
    if (differences[static_cast<std::size_t>(rank)] != index) continue;
    if (first_rank < 0) first_rank = rank;
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  }
  const auto at = static_cast<std::size_t>(index);
  const std::string other = context.broadcast_string(entry_or_nothing(entries, at), first_rank);
  return fmt::format("{} {} is {} on rank 0, but {} on rank {} (ranks that differ from rank 0 there: {})",
                     kind, index, entry_or_nothing(root, at), other, first_rank, ranks);
}

void require_same_entries(Context& context, std::string_view operation, std::string_view kind,
                          const std::vector<std::string>& entries) {
  const std::optional<std::string> difference = first_difference(context, kind, entries);
  if (!difference) return;
  throw Error(ErrorCode::mismatch,
              fmt::format("{}: {}; every rank must give the same, in the same order", operation, *difference))
      .as_agreed();
}

std::vector<std::string> gather_texts(Context& context, std::string_view mine) {
  const auto ranks = static_cast<std::size_t>(context.size());
  const auto length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(ranks);
  context.communicator().all_gather(&length, lengths.data(), 1, DataType::i64);
  const auto longest = static_cast<std::size_t>(*std::ranges::max_element(lengths));
  if (longest == 0) return std::vector<std::string>(ranks);
  std::string padded(mine);
  padded.resize(longest);
  std::string all(ranks * longest, '\0');
  context.communicator().all_gather(padded.data(), all.data(), longest, DataType::u8);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts.push_back(all.substr(rank * longest, static_cast<std::size_t>(lengths[rank])));
  }
  return texts;
}

}  // namespace ddl
