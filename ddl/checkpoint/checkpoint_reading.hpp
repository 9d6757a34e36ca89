#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddl/checkpoint/checkpoint_layout.hpp"
#include "ddl/checkpoint/checkpoint_snapshot.hpp"
#include "ddl/checkpoint/safetensors.hpp"
#include "ddl/files/durable_file.hpp"
#include "topology/json_text.hpp"

namespace ddl {

/// Requests bytes of a tensor in a file, from the tensor's byte `first` on.
struct TensorWant {
  std::string name;
  std::uint64_t first = 0;
  std::span<std::byte> target;
};

/// Reads a safetensors file. Throws `corrupt_data` if it does not hold what the manifest says.
class TensorFileReader {
 public:
  /// `forms`: tensors that the file must hold; with `all` it must not hold others.
  TensorFileReader(std::filesystem::path path, const CheckpointLayout::Forms& forms, bool all)
      : file_(std::move(path)), index_(safetensors::read_index(file_)) {
    for (const auto& [name, form] : forms) {
      const auto found = index_.find(name);
      const std::string expected = describe(form) + ", as the manifest says";
      if (found == index_.end())
        throw_corrupt(file_.path(), fmt::format("no tensor {}", topology::in_quotes(name)), expected);
      if (found->second.form != form) {
        throw_corrupt(
            file_.path(),
            fmt::format("{} for tensor {}", describe(found->second.form), topology::in_quotes(name)),
            expected);
      }
    }
    if (!all || index_.size() == forms.size()) return;
    const auto extra =
        std::ranges::find_if(index_, [&](const auto& item) { return !forms.contains(item.first); });
    throw_corrupt(file_.path(), fmt::format("tensor {}", topology::in_quotes(extra->first)),
                  "no such tensor, as the manifest says");
  }

  void read(const TensorWant& want) const { file_.read_at(offset_of(want.name) + want.first, want.target); }

  [[nodiscard]] const FileReader& file() const noexcept { return file_; }
  /// The tensor's offset in the file.
  [[nodiscard]] std::uint64_t offset_of(const std::string& name) const { return index_.at(name).offset; }

 private:
  FileReader file_;
  std::map<std::string, safetensors::Entry> index_;
};

/// A file that rank 0 reads and broadcasts. All functions are collective; errors are agreed.
class BroadcastTensorFile {
 public:
  BroadcastTensorFile(const Context& context, const std::filesystem::path& path,
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

  /// Fills the targets of each rank's own `wants`, in one pass over all tensors.
  void read(const std::vector<TensorWant>& wants) const {
    std::vector<std::byte> window(std::min<std::uint64_t>(end_ - begin_, checkpoint_window));
    for (std::uint64_t begin = begin_; begin < end_; begin += window.size()) {
      window.resize(std::min<std::uint64_t>(end_ - begin, window.size()));
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

 private:
  Context context_;
  std::optional<TensorFileReader> reader_;  // only on rank 0
  std::map<std::string, std::uint64_t> offsets_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace ddl
