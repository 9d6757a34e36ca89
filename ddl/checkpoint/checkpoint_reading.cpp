#include "ddl/checkpoint/checkpoint_reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "ddl/checkpoint/checkpoint_snapshot.hpp"
#include "ddl/error.hpp"

namespace ddl {

void throw_other_model(const std::filesystem::path& path, const std::string& tensor, const std::string& found,
                       const std::string& expected) {
  throw Error(ErrorCode::mismatch,
              fmt::format("'{}': tensor '{}': found {}, expected {}: the checkpoint is of another model",
                          path.string(), tensor, found, expected));
}

TensorFileReader::TensorFileReader(std::filesystem::path path, const CheckpointLayout::Forms& forms, bool all)
    : file_(std::move(path)), index_(safetensors::read_index(file_)) {
  for (const auto& [name, form] : forms) {
    const auto found = index_.find(name);
    const std::string expected = safetensors::describe(form.type, form.shape) + ", as the manifest says";
    if (found == index_.end()) throw_corrupt(file_.path(), fmt::format("no tensor '{}'", name), expected);
    const safetensors::Entry& entry = found->second;
    if (entry.type != form.type || entry.shape != form.shape) {
      throw_corrupt(file_.path(),
                    fmt::format("{} for tensor '{}'", safetensors::describe(entry.type, entry.shape), name),
                    expected);
    }
  }
  if (!all || index_.size() == forms.size()) return;
  const auto extra =
      std::ranges::find_if(index_, [&](const auto& item) { return !forms.contains(item.first); });
  throw_corrupt(file_.path(), fmt::format("tensor '{}'", extra->first),
                "no such tensor, as the manifest says");
}

void TensorFileReader::read(const TensorWant& want) const {
  file_.read_at(offset_of(want.name) + want.first, want.target);
}

BroadcastTensorFile::BroadcastTensorFile(Context& context, const std::filesystem::path& path,
                                         const CheckpointLayout::Forms& forms)
    : context_(context) {
  std::vector<std::uint64_t> offsets(forms.size());
  context.root_only("read the checkpoint", [&] {
    reader_.emplace(path, forms, true);
    auto offset = offsets.begin();
    for (const auto& [name, form] : forms) *offset++ = reader_->offset_of(name);
  });
  context.communicator().broadcast(offsets.data(), offsets.size() * sizeof(offsets[0]), 0);
  begin_ = forms.empty() ? 0 : std::numeric_limits<std::uint64_t>::max();
  auto offset = offsets.begin();
  for (const auto& [name, form] : forms) {
    offsets_[name] = *offset;
    begin_ = std::min(begin_, *offset);
    end_ = std::max(end_, *offset + form.bytes());
    ++offset;
  }
}

void BroadcastTensorFile::read(const std::vector<TensorWant>& wants) const { broadcast(begin_, end_, wants); }

void BroadcastTensorFile::read_whole(const std::string& name, std::span<std::byte> target) const {
  const std::uint64_t begin = offsets_.at(name);
  broadcast(begin, begin + target.size(), {{name, 0, target}});
}

void BroadcastTensorFile::broadcast(std::uint64_t begin, std::uint64_t end,
                                    const std::vector<TensorWant>& wants) const {
  std::vector<std::byte> window(std::min<std::uint64_t>(end - begin, checkpoint_window));
  for (; begin < end; begin += window.size()) {
    window.resize(std::min<std::uint64_t>(end - begin, window.size()));
    context_.root_only("read the checkpoint", [&] { reader_->file().read_at(begin, window); });
    context_.communicator().broadcast(window.data(), window.size(), 0);
    for (const TensorWant& want : wants) {
      const std::uint64_t first = offsets_.at(want.name) + want.first;
      const std::uint64_t from = std::max(begin, first);
      const std::uint64_t to = std::min(begin + window.size(), first + want.target.size());
      if (from < to)
        std::memcpy(want.target.data() + (from - first), window.data() + (from - begin), to - from);
    }
  }
}

}  // namespace ddl
