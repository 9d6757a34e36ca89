#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/files/durable_file.hpp"

namespace ddl {

/// A tensor's type and shape.
struct TensorForm {
  DataType type = DataType::f32;
  std::vector<std::int64_t> shape;

  /// Valid only for forms whose size in bytes fits 64 bits.
  [[nodiscard]] std::uint64_t elements() const noexcept { return bytes() / size_of(type); }
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  bool operator==(const TensorForm&) const = default;
};

/// The form of a NamedTensor or a TensorSlice.
TensorForm form_of(const auto& tensor) { return {tensor.type, tensor.shape}; }

/// "f32 [3, 4]"
std::string describe(const TensorForm& form);

}  // namespace ddl

/// The safetensors file format: an 8-byte little-endian header length, a JSON header padded with
/// spaces, then the tensors' bytes without gaps (github.com/huggingface/safetensors, README).
namespace ddl::safetensors {

/// The place of a tensor in a file, which is checked to be inside the file.
struct Entry {
  TensorForm form;
  std::uint64_t offset = 0;  ///< From the beginning of the file.
};

/// Converts a form to an object with "dtype" ("F32") and "shape", and back. `fail` must throw.
nlohmann::json to_json(const TensorForm& form);
using Fail = std::function<void(std::string_view found, std::string_view expected)>;
TensorForm parse_form(const nlohmann::json& object, const Fail& fail);

/// Throws `invalid_argument` for a name that is empty, given twice or not UTF-8, for a shape with a
/// negative size, and for bytes that do not match type and shape.
void check(std::span<const NamedTensor> tensors);
/// Checks all kinds of tensors of a group. A slice must lie inside its tensor; slices may repeat a name.
void check(const CheckpointGroup& group);

/// Writes a whole file; `check` must have accepted `tensors`. `metadata` is for people and other programs.
void write(FileWriter& file, std::span<const NamedTensor> tensors,
           const std::map<std::string, std::string>& metadata = {});

/// Reads and checks the header, and that the tensors fill the file without gaps; throws `corrupt_data`. Never
/// allocates more than the file's actual size for the header.
std::map<std::string, Entry> read_index(const FileReader& file);

}  // namespace ddl::safetensors
