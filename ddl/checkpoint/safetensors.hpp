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

  /// Of a form that is known to be a size that fits 64 bits.
  [[nodiscard]] std::uint64_t elements() const noexcept { return bytes() / size_of(type); }
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  bool operator==(const TensorForm&) const = default;
};

/// Of a NamedTensor or a TensorSlice.
TensorForm form_of(const auto& tensor) { return {tensor.type, tensor.shape}; }

/// "f32 [3, 4]"
std::string describe(const TensorForm& form);

}  // namespace ddl

/// The safetensors file format: an 8-byte little-endian header length, a JSON header padded with
/// spaces, then the tensors' bytes without gaps (github.com/huggingface/safetensors, README).
namespace ddl::safetensors {

/// Where a tensor lies in a file. Checked: it is inside the file.
struct Entry {
  TensorForm form;
  std::uint64_t offset = 0;  ///< From the beginning of the file.
};

/// A form as "dtype" ("F32") and "shape" of an object, and back. `fail` throws; it gets what was found and
/// what was expected.
nlohmann::json to_json(const TensorForm& form);
using Fail = std::function<void(std::string_view found, std::string_view expected)>;
TensorForm parse_form(const nlohmann::json& object, const Fail& fail);

/// Throws `invalid_argument` for a name that is empty, given twice or not UTF-8, for a shape with a
/// negative size, and for bytes that do not fit type and shape.
void check(std::span<const NamedTensor> tensors);
/// The same for all kinds of tensors. A slice's elements must be in the tensor, whose name may come again.
void check(const CheckpointGroup& group);

/// Writes a file's whole contents; `tensors` have been checked. `metadata` is for people and other programs.
void write(FileWriter& file, std::span<const NamedTensor> tensors,
           const std::map<std::string, std::string>& metadata = {});

/// Reads and checks the header; throws `corrupt_data`. The data ends where the file does. Memory is bounded
/// by the file's real size.
std::map<std::string, Entry> read_index(const FileReader& file);

}  // namespace ddl::safetensors
