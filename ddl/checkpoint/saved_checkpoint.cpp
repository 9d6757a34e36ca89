#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <system_error>
#include <utility>

#include "ddl/checkpoint.hpp"
#include "ddl/checkpoint/checkpoint_manifest.hpp"
#include "ddl/checkpoint/checkpoint_reading.hpp"
#include "ddl/checkpoint/safetensors.hpp"
#include "ddl/files/durable_file.hpp"
#include "topology/refuse.hpp"

namespace ddl {
namespace {

namespace fs = std::filesystem;
using Layout = CheckpointLayout;

constexpr const char* opening = "open the checkpoint";
constexpr const char* reading = "read the checkpoint";

/// This rank's requests to a file, by the names of tensors in that file.
struct FileWants {
  Layout::Forms forms;
  std::vector<TensorWant> wants;
};

Error other_model(const fs::path& path, const std::string& tensor, const std::string& found,
                  const std::string& expected) {
  return {ErrorCode::mismatch,
          fmt::format("'{}': tensor '{}': found {}, expected {}: the checkpoint is of another model",
                      path.string(), tensor, found, expected)};
}

}  // namespace

struct SavedCheckpoint::State {
  const Layout::Group& group(const std::string& name) const {
    const auto found = manifest.layout.groups.find(name);
    if (found != manifest.layout.groups.end()) return found->second;
    fail_with(ErrorCode::mismatch,
              "'{}': found no group '{}' of tensors, expected one: the checkpoint is "
              "of another program or model",
              path.string(), name);
  }
  /// Throws `mismatch` if this rank's request does not match the saved tensors.
  void check(const std::string& name, const CheckpointGroup& into) const {
    const Layout::Group& saved = group(name);
    safetensors::check(into);
    const auto compare = [&](const std::string& tensor, const TensorForm& wanted, const TensorForm* found) {
      if (found == nullptr) throw other_model(path, tensor, "nothing", describe(wanted));
      if (*found != wanted) throw other_model(path, tensor, describe(*found), describe(wanted));
    };
    const auto compare_shared = [&](const auto& tensor) {
      const auto found = saved.tensors.find(tensor.name);
      compare(tensor.name, form_of(tensor), found == saved.tensors.end() ? nullptr : &found->second.form);
    };
    for (const NamedTensor& tensor : into.whole) compare_shared(tensor);
    for (const TensorSlice& slice : into.slices) compare_shared(slice);

    if (into.per_rank.empty()) return;
    if (manifest.layout.ranks != context.size()) {
      fail_with(ErrorCode::mismatch,
                "'{}': {} ranks saved tensors of their own in group '{}', and {} ask for theirs: expected as "
                "many; save what other numbers of ranks are to read as slices",
                path.string(), manifest.layout.ranks, name, context.size());
    }
    static const Layout::Forms none;
    const auto rank = as_index(context.rank());
    const Layout::Forms& own = rank < saved.per_rank.size() ? saved.per_rank[rank] : none;
    for (const NamedTensor& tensor : into.per_rank) {
      const auto found = own.find(tensor.name);
      compare(tensor.name, form_of(tensor), found == own.end() ? nullptr : &found->second);
    }
    for (const auto& [tensor, form] : own) {
      if (std::ranges::find(into.per_rank, tensor, &NamedTensor::name) == into.per_rank.end())
        throw other_model(path, tensor, describe(form), "nothing");
    }
  }
  /// Throws if no rank requests one of the saved tensors. Returns whether any rank requests tensors of its
  /// own.
  bool agree_on_what_is_wanted(const std::string& name, const CheckpointGroup& into) const {
    std::set<std::string> names;
    for (const NamedTensor& tensor : into.whole) names.insert(tensor.name);
    for (const TensorSlice& slice : into.slices) names.insert(slice.name);
    std::vector<std::uint8_t> wanted;
    const Layout::Group& saved = group(name);
    for (const auto& [tensor, value] : saved.tensors) wanted.push_back(names.contains(tensor) ? 1 : 0);
    wanted.push_back(into.per_rank.empty() ? 0 : 1);
    context.communicator().all_reduce(std::span(wanted), ReduceOp::max);
    auto is_wanted = wanted.begin();
    for (const auto& [tensor, value] : saved.tensors) {
      if (*is_wanted++ != 0 || value.form.elements() == 0) continue;
      throw other_model(path, tensor, describe(value.form), "nothing").as_agreed();
    }
    return wanted.back() != 0;
  }
  /// This rank's requests by file.
  std::map<std::string, FileWants> wants_of(const std::string& name, const CheckpointGroup& into) const {
    std::map<std::string, FileWants> files;
    const auto add = [&](const auto& wanted, std::uint64_t first) {
      const Layout::Tensor& tensor = group(name).tensors.at(wanted.name);
      const std::uint64_t size = size_of(tensor.form.type);
      const std::uint64_t begin = first * size;
      const std::uint64_t end = begin + wanted.bytes.size();
      for (const TensorPiece& piece : tensor.pieces) {
        const std::uint64_t from = std::max(begin, piece.first * size);
        const std::uint64_t to = std::min(end, piece.end() * size);
        if (from >= to) continue;
        const Layout::Stored stored = Layout::stored(wanted.name, tensor.form, piece);
        FileWants& file = files[manifest.layout.file_of(name, piece)];
        file.forms[stored.name] = stored.form;
        file.wants.push_back(
            {stored.name, from - piece.first * size, wanted.bytes.subspan(from - begin, to - from)});
      }
    };
    for (const NamedTensor& tensor : into.whole) add(tensor, 0);
    for (const TensorSlice& slice : into.slices) add(slice, slice.first);
    for (const NamedTensor& tensor : into.per_rank) {
      FileWants& file = files[manifest.layout.rank_file(name, context.rank())];
      file.forms[tensor.name] = form_of(tensor);
      file.wants.push_back({tensor.name, 0, tensor.bytes});
    }
    return files;
  }
  /// The forms of all tensors in a group's files, by file, of a checkpoint that is not sharded.
  std::map<std::string, Layout::Forms> files_of(const std::string& name, bool per_rank) const {
    std::map<std::string, Layout::Forms> files;
    const Layout::Group& saved = group(name);
    for (const auto& [tensor, value] : saved.tensors) files[Layout::whole_file(name)][tensor] = value.form;
    for (std::size_t rank = 0; per_rank && rank < saved.per_rank.size(); ++rank) {
      if (saved.per_rank[rank].empty()) continue;
      files[manifest.layout.rank_file(name, static_cast<int>(rank))] = saved.per_rank[rank];
    }
    return files;
  }
  /// Each rank reads its own requests, file by file. Checks all headers before it fills anything.
  void read(const std::map<std::string, FileWants>& wanted) const {
    for (const bool fills : {false, true}) {
      const auto read = [&] {
        for (const auto& [file, own] : wanted) {
          const TensorFileReader reader(path / file, own.forms, false);
          for (const TensorWant& want : own.wants) {
            if (fills) reader.read(want);
          }
        }
      };
      context.on_all_ranks(reading, read, WorkTime::unlimited);
    }
  }
  /// As `read`, but rank 0 reads all `files` and broadcasts them.
  void read_for_all(const std::map<std::string, Layout::Forms>& files,
                    std::map<std::string, FileWants>& wanted) const {
    for (const bool fills : {false, true}) {
      for (const auto& [file, forms] : files) {
        const BroadcastTensorFile reader(context, path / file, forms);
        if (fills) reader.read(wanted[file].wants);
      }
    }
  }

  Context context;
  fs::path path;
  CheckpointManifest manifest;
  std::string state;
};

SavedCheckpoint::SavedCheckpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
SavedCheckpoint::SavedCheckpoint(SavedCheckpoint&&) noexcept = default;
SavedCheckpoint& SavedCheckpoint::operator=(SavedCheckpoint&&) noexcept = default;
SavedCheckpoint::~SavedCheckpoint() = default;

SavedCheckpoint SavedCheckpoint::open(const Context& context, const fs::path& path) {
  return open_step(context, path, {});
}

SavedCheckpoint SavedCheckpoint::open_step(const Context& context, const fs::path& path,
                                           std::optional<std::uint64_t> step) {
  auto result = std::make_unique<State>(State{context, context.broadcast_string(path.string()), {}, {}});
  State& state = *result;
  const auto require_directory = [&] {
    std::error_code error;
    if (fs::is_directory(state.path, error)) return;
    const bool is_there = fs::exists(state.path, error);
    throw_io(opening, state.path, is_there ? ENOTDIR : error ? error.value() : ENOENT);
  };
  std::string text;
  context.root_only(opening, [&] {
    require_directory();
    text = CheckpointManifest::read_text(state.path);
    state.manifest = CheckpointManifest::parse(state.path, text);
    if (step && state.manifest.step != *step) {
      throw_corrupt(state.path / manifest_name, fmt::format("step {}", state.manifest.step),
                    fmt::format("{}, as the directory's name says", *step));
    }
    if (!state.manifest.layout.sharded) state.manifest.verify(state.path);
  });
  text = context.broadcast_string(text);
  if (!context.is_root()) state.manifest = CheckpointManifest::parse(state.path, text);
  if (state.manifest.layout.sharded) {
    context.on_all_ranks(
        opening,
        [&] {
          std::error_code error;
          if (!fs::exists(state.path / manifest_name, error)) {
            fail_with(ErrorCode::io,
                      "rank {} does not see the sharded checkpoint '{}', which rank 0 "
                      "reads: it must be on a file system that all hosts share",
                      context.rank(), state.path.string());
          }
          state.manifest.verify(state.path, as_index(context.rank()), as_index(context.size()));
        },
        WorkTime::unlimited);
  }
  SavedCheckpoint saved(std::move(result));
  saved.state_->state = saved.file(state_name);
  return saved;
}

const Context& SavedCheckpoint::context() const noexcept { return state_->context; }
const fs::path& SavedCheckpoint::path() const noexcept { return state_->path; }
std::uint64_t SavedCheckpoint::step() const noexcept { return state_->manifest.step; }
const std::string& SavedCheckpoint::state() const noexcept { return state_->state; }
std::optional<double> SavedCheckpoint::metric() const noexcept { return state_->manifest.metric; }
int SavedCheckpoint::ranks() const noexcept { return state_->manifest.layout.ranks; }
bool SavedCheckpoint::has_group(const std::string& group) const {
  return state_->manifest.layout.groups.contains(group);
}

std::string SavedCheckpoint::file(const std::string& name) const {
  std::string text;
  state_->context.root_only(reading, [&] {
    if (!state_->manifest.files.contains(name)) {
      fail_with(ErrorCode::mismatch,
                "'{}': found no file '{}', expected one: the checkpoint is of "
                "another program",
                state_->path.string(), name);
    }
    text = state_->manifest.open(state_->path, name).read_all();
  });
  return state_->context.broadcast_string(text);
}

void SavedCheckpoint::restore(const std::string& group, const CheckpointGroup& into) const {
  state_->context.on_all_ranks(reading, [&] { state_->check(group, into); });
  const bool per_rank = state_->agree_on_what_is_wanted(group, into);
  std::map<std::string, FileWants> wanted = state_->wants_of(group, into);
  if (state_->manifest.layout.sharded) {
    state_->read(wanted);
  } else {
    state_->read_for_all(state_->files_of(group, per_rank), wanted);
  }
}

}  // namespace ddl
