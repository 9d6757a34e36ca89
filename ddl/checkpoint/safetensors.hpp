#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/files/durable_file.hpp"

/// The safetensors file format: an 8-byte little-endian header length, a JSON header padded with
/// spaces, then the tensors' bytes without gaps (github.com/huggingface/safetensors, README).
namespace ddl::safetensors {

/// Where a tensor lies in a file. Checked: the range is inside the file and fits type and shape.
struct Entry {
  DataType type = DataType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  ///< From the beginning of the file.
  std::uint64_t bytes = 0;
};

/// "F32", and back.
std::string_view type_name(DataType type);
std::optional<DataType> type_named(std::string_view name);

/// Bytes of a tensor, unless the shape has a negative size or the product overflows.
std::optional<std::uint64_t> bytes_of(DataType type, std::span<const std::int64_t> shape);

/// "f32 [3, 4]"
std::string describe(DataType type, std::span<const std::int64_t> shape);

/// Throws `invalid_argument` for a name that is empty, given twice or not UTF-8, for a shape with a
/// negative size, and for bytes that do not fit type and shape.
void check(std::span<const NamedTensor> tensors);
/// The same for a slice, whose elements must be in the tensor. Names may come again.
void check(const TensorSlice& slice);

/// Writes a file's whole contents; `tensors` have been checked. `metadata` is for people and other programs.
void write(FileWriter& file, std::span<const NamedTensor> tensors,
           const std::map<std::string, std::string>& metadata = {});

/// Reads and checks the header; throws `corrupt_data`. The data ends where the file does. Memory is bounded
/// by the file's real size.
std::map<std::string, Entry> read_index(const FileReader& file);

}  // namespace ddl::safetensors
