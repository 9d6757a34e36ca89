#include "ddl/checkpoint/checkpoint_reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ddl/checkpoint/checkpoint_snapshot.hpp"

namespace ddl {

TensorFileReader::TensorFileReader(std::filesystem::path path, const CheckpointLayout::Forms& forms, bool all)
    : file_(std::move(path)), index_(safetensors::read_index(file_)) {
  for (const auto& [name, form] : forms) {
    const auto found = index_.find(name);
    const std::string expected = describe(form) + ", as the manifest says";
    if (found == index_.end()) throw_corrupt(file_.path(), fmt::format("no tensor '{}'", name), expected);
    if (found->second.form != form) {
      throw_corrupt(file_.path(), fmt::format("{} for tensor '{}'", describe(found->second.form), name),
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

BroadcastTensorFile::BroadcastTensorFile(const Context& context, const std::filesystem::path& path,
                                         const CheckpointLayout::Forms& forms)
    : context_(context) {
  std::vector<std::uint64_t> offsets(forms.size());
  context.root_only("read the checkpoint", [&] {
    reader_.emplace(path, forms, true);
    auto offset = offsets.begin();
    for (const auto& [name, form] : forms) *offset++ = reader_->offset_of(name);
  });
  context.communicator().broadcast(
      Elements(offsets.data(), offsets.size() * sizeof(offsets[0]), DataType::u8), 0);
  auto offset = offsets.begin();
  for (const auto& [name, form] : forms) {
    offsets_[name] = *offset++;
    end_ += form.bytes();
  }
  if (!offsets.empty()) begin_ = std::ranges::min(offsets);
  end_ += begin_;  // the file has no gaps and no other tensors
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
    context_.communicator().broadcast(Elements(window.data(), window.size(), DataType::u8), 0);
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
