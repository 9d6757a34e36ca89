#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddl/checkpoint/checkpoint_layout.hpp"
#include "ddl/checkpoint/safetensors.hpp"
#include "ddl/files/durable_file.hpp"

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
  TensorFileReader(std::filesystem::path path, const CheckpointLayout::Forms& forms, bool all);

  void read(const TensorWant& want) const;
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
                      const CheckpointLayout::Forms& forms);

  /// Fills the targets of each rank's own `wants`, in one pass over all tensors.
  void read(const std::vector<TensorWant>& wants) const;
  /// Fills `target` with the whole tensor on every rank.
  void read_whole(const std::string& name, std::span<std::byte> target) const;

 private:
  void broadcast(std::uint64_t begin, std::uint64_t end, const std::vector<TensorWant>& wants) const;

  Context context_;
  std::optional<TensorFileReader> reader_;  // only on rank 0
  std::map<std::string, std::uint64_t> offsets_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace ddl
