#include "ddl/checkpoint/checkpoint_layout.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "collectives/system/fail_agreed.hpp"
#include "ddl/checkpoint/checkpoint_manifest.hpp"
#include "ddl/context/agreement.hpp"

namespace ddl {
namespace {

using nlohmann::json;
using Layout = CheckpointLayout;

[[noreturn]] void throw_invalid(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "cannot save a checkpoint: " + message);
}

[[noreturn]] void throw_agreed(ErrorCode code, const std::string& group, const std::string& tensor,
                               const std::string& message) {
  fail_agreed(code, "{}: tensor '{}' of group '{}' {}", save_operation, tensor, group, message);
}

/// One rank's slice of a tensor, as exchanged between all ranks.
struct Slice {
  TensorForm form;
  TensorPiece piece;
};
using SlicesByTensor = std::map<std::string, std::vector<Slice>>;

/// Describes the contents that may differ between ranks: for each group its slices as [name, form, first,
/// count], and this rank's own tensors; "" if there are none.
std::string describe_own(const CheckpointContents& contents) {
  json result = json::object();
  for (const auto& [name, group] : contents.groups) {
    json slices = json::array();
    for (const TensorSlice& slice : group.slices) {
      slices.push_back({slice.name, safetensors::to_json(form_of(slice)), slice.first,
                        slice.bytes.size() / size_of(slice.type)});
    }
    json per_rank = json::object();
    for (const NamedTensor& tensor : group.per_rank)
      per_rank[tensor.name] = safetensors::to_json(form_of(tensor));
    if (!slices.empty() || !per_rank.empty()) result[name] = {std::move(slices), std::move(per_rank)};
  }
  return result.empty() ? "" : result.dump();
}

/// Describes the contents that must be the same on all ranks, for comparison and for messages.
std::vector<std::string> describe_common(const CheckpointContents& contents) {
  std::vector<std::string> entries;
  for (const auto& [name, group] : contents.groups) {
    entries.push_back(fmt::format("(the group '{}')", name));
    for (const NamedTensor& tensor : group.whole) {
      entries.push_back(fmt::format("'{}' of group '{}', {}", tensor.name, name, describe(form_of(tensor))));
    }
  }
  return entries;
}

/// Chooses pieces that cover the tensor without overlaps: at each place from the slice that reaches furthest.
std::vector<TensorPiece> cover(const std::string& group, const std::string& name, std::vector<Slice> slices) {
  const TensorForm& form = slices.front().form;
  for (const Slice& slice : slices) {
    if (slice.form == form) continue;
    throw_agreed(ErrorCode::mismatch, group, name,
                 fmt::format("is {} on rank {}, but {} on rank {}", describe(form), slices.front().piece.rank,
                             describe(slice.form), slice.piece.rank));
  }
  std::ranges::sort(slices, {}, [](const Slice& slice) {
    return std::tuple(slice.piece.first, slice.piece.rank, slice.piece.count);
  });
  std::vector<TensorPiece> pieces;
  std::uint64_t at = 0;
  for (std::size_t next = 0; at < form.elements();) {
    TensorPiece best{0, at, 0};
    for (; next < slices.size() && slices[next].piece.first <= at; ++next) {
      const TensorPiece& piece = slices[next].piece;
      if (piece.end() > best.end()) best = {piece.rank, at, piece.end() - at};
    }
    if (best.count == 0) {
      const std::uint64_t end = next < slices.size() ? slices[next].piece.first : form.elements();
      throw_agreed(ErrorCode::invalid_argument, group, name,
                   fmt::format("({}) has a gap: no rank gives a slice with elements {} to {}", describe(form),
                               at, end - 1));
    }
    pieces.push_back(best);
    at = best.end();
  }
  if (pieces.empty()) pieces.push_back({});
  return pieces;
}

/// Assigns whole tensors, the largest first, each to the rank with the least bytes to write. Unless the
/// checkpoint is sharded, rank 0 writes all of them.
void share_out(Layout& layout, const CheckpointContents& contents) {
  std::vector<std::uint64_t> load(as_index(layout.ranks));
  for (const auto& [name, group] : layout.groups) {
    for (const auto& [tensor_name, tensor] : group.tensors) {
      for (const TensorPiece& piece : tensor.pieces)
        load[as_index(piece.rank)] += piece.count * size_of(tensor.form.type);
    }
    for (std::size_t rank = 0; rank < group.per_rank.size(); ++rank) {
      for (const auto& [tensor_name, form] : group.per_rank[rank]) load[rank] += form.bytes();
    }
  }
  std::vector<std::pair<std::string, const NamedTensor*>> order;
  for (const auto& [name, group] : contents.groups) {
    for (const NamedTensor& tensor : group.whole) order.emplace_back(name, &tensor);
  }
  std::ranges::stable_sort(order, std::greater(), [](const auto& item) { return item.second->bytes.size(); });
  for (const auto& [group, tensor] : order) {
    const auto least = layout.sharded ? std::ranges::min_element(load) : load.begin();
    *least += tensor->bytes.size();
    const TensorForm form = form_of(*tensor);
    layout.groups[group].tensors[tensor->name] = {
        form, {{static_cast<int>(least - load.begin()), 0, form.elements()}}};
  }
}

void require_one_kind(const CheckpointContents& contents, const Layout& layout) {
  for (const auto& [name, group] : contents.groups) {
    std::set<std::string> names;
    for (const auto& [tensor, value] : layout.groups.at(name).tensors) names.insert(tensor);
    for (const NamedTensor& tensor : group.whole) {
      if (names.contains(tensor.name))
        throw_agreed(ErrorCode::mismatch, name, tensor.name, "is given whole, and as slices");
      names.insert(tensor.name);
    }
    for (const auto& tensors : layout.groups.at(name).per_rank) {
      for (const auto& [tensor, form] : tensors) {
        if (names.contains(tensor))
          throw_agreed(ErrorCode::mismatch, name, tensor, "is given as one rank's own, and as all ranks'");
      }
    }
  }
}

/// Adds the description of `rank`, as describe_own gives it.
void add_own(const std::string& text, int rank, Layout& layout,
             std::map<std::string, SlicesByTensor>& slices) {
  if (text.empty()) return;
  const auto fail = [](std::string_view found, std::string_view) {
    fail_with(ErrorCode::internal, "{}: a rank describes {}", save_operation, found);
  };
  const json groups = json::parse(text);
  for (const auto& [name, lists] : groups.items()) {
    for (const json& value : lists[0]) {
      slices[name][value[0]].push_back({safetensors::parse_form(value[1], fail), {rank, value[2], value[3]}});
    }
    auto& per_rank = layout.groups[name].per_rank;
    for (const auto& [tensor, form] : lists[1].items()) {
      per_rank.resize(as_index(layout.ranks));
      per_rank[as_index(rank)][tensor] = safetensors::parse_form(form, fail);
    }
  }
}

}  // namespace

std::string CheckpointLayout::whole_file(std::string_view group) {
  return fmt::format("{}.safetensors", group);
}

std::string CheckpointLayout::rank_file(std::string_view group, int rank) const {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", group, rank, ranks);
}

std::string CheckpointLayout::file_of(std::string_view group, const TensorPiece& piece) const {
  return sharded ? rank_file(group, piece.rank) : whole_file(group);
}

CheckpointLayout::Stored CheckpointLayout::stored(const std::string& name, const TensorForm& form,
                                                  const TensorPiece& piece) {
  if (piece.count == form.elements()) return {name, form, true};
  return {fmt::format("{}[{}:{}]", name, piece.first, piece.end()),
          {form.type, {static_cast<std::int64_t>(piece.count)}},
          false};
}

void check_contents(const CheckpointContents& contents, std::optional<double> metric, bool is_root) {
  const auto check_name = [&](const std::string& name) {
    if (!is_plain_file_name(name) || !json::accept('"' + name + '"'))
      throw_invalid(fmt::format("'{}' is no plain file name in UTF-8", name));
  };
  std::set<std::string> names = {manifest_name, state_name};
  for (const auto& [name, text] : contents.files) {
    check_name(name);
    if (name.ends_with(".safetensors") || !names.insert(name).second)
      throw_invalid(fmt::format(
          "a file cannot be called '{}', because checkpoints use such names themselves; choose another name",
          name));
  }
  for (const auto& [name, group] : contents.groups) {
    if (name.empty()) throw_invalid("a group of tensors has no name");
    if (name.find("-of-") != std::string::npos)
      throw_invalid(
          fmt::format("a group cannot be called '{}': \"-of-\" marks the files of single ranks", name));
    check_name(name);
    safetensors::check(group);
  }
  if (!is_root) return;
  if (!contents.state.empty() && !json::accept(contents.state)) throw_invalid("the state is no JSON text");
  if (metric && !std::isfinite(*metric))
    throw_invalid(fmt::format("the metric is {}, expected a finite number", *metric));
}

std::string describe_contents(const CheckpointContents& contents) {
  return fmt::format("{}{}", json(describe_common(contents)).dump(), describe_own(contents));
}

CheckpointLayout agree_on_layout(const Context& context, const CheckpointContents& contents, bool sharded) {
  require_same_entries(context, save_operation, "tensor", describe_common(contents));
  Layout layout;
  layout.ranks = context.size();
  layout.sharded = sharded;
  for (const auto& [name, group] : contents.groups) layout.groups[name];
  std::map<std::string, SlicesByTensor> slices;
  const auto texts = gather_texts(context, describe_own(contents));
  for (int rank = 0; rank < context.size(); ++rank) add_own(texts[as_index(rank)], rank, layout, slices);
  for (auto& [name, tensors] : slices) {
    for (auto& [tensor, parts] : tensors) {
      const TensorForm form = parts.front().form;
      layout.groups[name].tensors[tensor] = {form, cover(name, tensor, std::move(parts))};
    }
  }
  require_one_kind(contents, layout);
  share_out(layout, contents);
  return layout;
}

}  // namespace ddl
