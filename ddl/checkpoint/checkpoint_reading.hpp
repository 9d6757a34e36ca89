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

/// Bytes wanted of a tensor in a file, from byte `first` on.
struct TensorWant {
  std::string name;
  std::uint64_t first = 0;
  std::span<std::byte> target;
};

/// A safetensors file that holds what a manifest says; else `corrupt_data`.
class TensorFileReader {
 public:
  /// `forms`: tensors that must be there; with `all`, no others may.
  TensorFileReader(std::filesystem::path path, const CheckpointLayout::Forms& forms, bool all);

  void read(const TensorWant& want) const;
  [[nodiscard]] const FileReader& file() const noexcept { return file_; }
  /// Where the tensor begins.
  [[nodiscard]] std::uint64_t offset_of(const std::string& name) const { return index_.at(name).offset; }

 private:
  FileReader file_;
  std::map<std::string, safetensors::Entry> index_;
};

/// A file that rank 0 reads for all. Collective; errors are agreed.
class BroadcastTensorFile {
 public:
  BroadcastTensorFile(const Context& context, const std::filesystem::path& path,
                      const CheckpointLayout::Forms& forms);

  /// Fills what each rank wants, from one pass over all tensors.
  void read(const std::vector<TensorWant>& wants) const;
  /// Fills `target` with the whole tensor on every rank.
  void read_whole(const std::string& name, std::span<std::byte> target) const;

 private:
  void broadcast(std::uint64_t begin, std::uint64_t end, const std::vector<TensorWant>& wants) const;

  Context context_;
  std::optional<TensorFileReader> reader_;  // rank 0's
  std::map<std::string, std::uint64_t> offsets_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace ddl
