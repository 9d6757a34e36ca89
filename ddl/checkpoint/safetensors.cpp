#include "ddl/checkpoint/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "topology/json_text.hpp"
#include "topology/refuse.hpp"

namespace ddl {
namespace {

/// The bytes of a tensor; nothing if the shape has a negative size or the product overflows.
std::optional<std::uint64_t> bytes_of(const TensorForm& form) {
  std::uint64_t bytes = size_of(form.type);
  for (const std::int64_t size : form.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return {};
  }
  return bytes;
}

}  // namespace

std::uint64_t TensorForm::bytes() const noexcept { return bytes_of(*this).value_or(0); }

std::string describe(const TensorForm& form) {
  return fmt::format("{} [{}]", to_string(form.type), fmt::join(form.shape, ", "));
}

namespace safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors holds little-endian data");

using nlohmann::json;

constexpr std::string_view metadata_name = "__metadata__";
constexpr std::uint64_t largest_header = 100'000'000;  // the reference implementation's limit

/// In the order of `DataType`.
constexpr std::array<std::string_view, 7> type_names = {"U8", "I32", "I64", "F32", "F64", "F16", "BF16"};

[[noreturn]] void fail(const std::string& name, const std::string& message) {
  fail_with(ErrorCode::invalid_argument, "tensor {} {}", topology::in_quotes(name), message);
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(json(text).dump());
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

/// The beginning of a value, for messages.
std::string shortened(const json& value) {
  return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 80);
}

/// Checks the name and the form of a NamedTensor or TensorSlice, and returns the bytes of the whole tensor.
template <typename T>
std::uint64_t checked_bytes(const T& tensor) {
  if (!is_utf8(tensor.name)) {
    throw Error(ErrorCode::invalid_argument, "a tensor's name is not UTF-8; checkpoints need names that are");
  }
  if (tensor.name.empty() || tensor.name == metadata_name) {
    fail(tensor.name, "has a name that the safetensors format does not allow; choose another");
  }
  if (size_of(tensor.type) == 0) {
    fail(tensor.name, "has no known type; expected u8, i32, i64, f32, f64, f16 or bf16");
  }
  const TensorForm form = form_of(tensor);
  const auto bytes = bytes_of(form);
  if (!bytes) {
    fail(tensor.name, fmt::format("has the shape {}; expected sizes that fit 64 bits", describe(form)));
  }
  return *bytes;
}

void check_slice(const TensorSlice& slice) {
  const std::uint64_t size = size_of(slice.type);
  const std::uint64_t elements = checked_bytes(slice) / size;
  if (slice.bytes.size() % size != 0) {
    fail(slice.name,
         fmt::format("has a slice of {} bytes; expected a multiple of {}", slice.bytes.size(), size));
  }
  const std::uint64_t count = slice.bytes.size() / size;
  if (slice.first > elements || count > elements - slice.first) {
    fail(slice.name, fmt::format("has a slice of {} elements from {}; expected some of the {} of {}", count,
                                 slice.first, elements, describe(form_of(slice))));
  }
}

/// Checks and parses one entry of the header.
Entry parse_entry(const FileReader& file, const std::string& name, const json& value,
                  std::uint64_t data_begin) {
  const std::uint64_t data_bytes = file.size() - data_begin;
  const auto fail = [&](std::string_view found, std::string_view expected) {
    throw_corrupt(file.path(), fmt::format("{} for tensor {}", found, topology::in_quotes(name)), expected);
  };
  if (!value.is_object() || !value.contains("data_offsets")) {
    fail(shortened(value), "an object with dtype, shape and data_offsets");
  }
  const TensorForm form = parse_form(value, fail);
  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    fail("data_offsets that are no range", "[begin, end]");
  }
  // The offsets are relative to the beginning of the data.
  const auto begin = offsets[0].get<std::uint64_t>();
  const auto end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data_bytes) {
    fail(fmt::format("data_offsets [{}, {}]", begin, end),
         fmt::format("a range within the file's {} bytes of data", data_bytes));
  }
  if (form.bytes() != end - begin) {
    fail(fmt::format("{} bytes of data", end - begin),
         fmt::format("{} bytes for {}", form.bytes(), describe(form)));
  }
  return {form, data_begin + begin};
}

void check_no_gaps(const FileReader& file, const std::map<std::string, Entry>& index,
                   std::uint64_t data_begin) {
  std::vector<const std::pair<const std::string, Entry>*> by_offset;
  for (const auto& item : index) by_offset.push_back(&item);
  std::ranges::sort(by_offset, {}, [](const auto* item) {
    return std::tuple(item->second.offset, item->second.form.bytes());
  });
  std::uint64_t at = data_begin;
  for (const auto* item : by_offset) {
    if (item->second.offset != at) {
      throw_corrupt(file.path(),
                    fmt::format("tensor {} at byte {}, {} the one before it",
                                topology::in_quotes(item->first), item->second.offset - data_begin,
                                item->second.offset < at ? "overlapping" : "after a gap behind"),
                    fmt::format("byte {}", at - data_begin));
    }
    at += item->second.form.bytes();
  }
  if (at != file.size()) {
    throw_corrupt(file.path(), fmt::format("{} bytes after the last tensor", file.size() - at), "none");
  }
}

}  // namespace

json to_json(const TensorForm& form) {
  return {{"dtype", type_names[as_index(form.type)]}, {"shape", form.shape}};
}

TensorForm parse_form(const json& object, const Fail& fail) {
  if (!object.is_object() || !object.contains("dtype") || !object.contains("shape"))
    fail(shortened(object), "an object with dtype and shape");
  const json& dtype = object["dtype"];
  const auto* const type = std::ranges::find(type_names, dtype.is_string() ? dtype.get<std::string>() : "");
  if (type == type_names.end())
    fail("type " + shortened(dtype), fmt::format("{}", fmt::join(type_names, ", ")));
  TensorForm form{static_cast<DataType>(type - type_names.begin()), {}};
  const json& shape = object["shape"];
  const auto is_size = [](const json& size) {
    return size.is_number_unsigned() && size.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
  };
  if (!shape.is_array() || !std::ranges::all_of(shape, is_size)) {
    fail("a shape that is not a list of sizes", "non-negative integers");
  }
  form.shape = shape.get<std::vector<std::int64_t>>();
  if (!bytes_of(form)) fail("shape " + describe(form), "a size that fits 64 bits");
  return form;
}

void check(std::span<const NamedTensor> tensors) {
  std::set<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    const auto expected = checked_bytes(tensor);
    if (!names.insert(tensor.name).second)
      fail(tensor.name, "is given twice; names must differ within a group");
    if (expected != tensor.bytes.size()) {
      fail(tensor.name, fmt::format("has {} bytes; expected {} for {}", tensor.bytes.size(), expected,
                                    describe(form_of(tensor))));
    }
  }
}

void check(const CheckpointGroup& group) {
  check(group.whole);
  for (const TensorSlice& slice : group.slices) check_slice(slice);
  check(group.per_rank);
}

void write(FileWriter& file, std::span<const NamedTensor> tensors,
           const std::map<std::string, std::string>& metadata) {
  // As in the reference implementation, larger elements come first, so that every tensor is aligned.
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const NamedTensor* tensor) {
    return std::tuple(-static_cast<int>(size_of(tensor->type)), std::string_view(tensor->name));
  });
  json header = json::object();
  if (!metadata.empty()) header[std::string(metadata_name)] = metadata;
  std::uint64_t offset = 0;
  for (const NamedTensor* tensor : order) {
    const std::uint64_t end = offset + tensor->bytes.size();
    json& entry = header[tensor->name] = to_json(form_of(*tensor));
    entry["data_offsets"] = {offset, end};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > largest_header) {
    fail_with(ErrorCode::invalid_argument,
              "{} tensors make a safetensors header of {} bytes, expected at most {}; use shorter names "
              "or more groups",
              tensors.size(), text.size(), largest_header);
  }
  const std::uint64_t length = text.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(text);
  for (const NamedTensor* tensor : order) file.write(tensor->bytes);
}

std::map<std::string, Entry> read_index(const FileReader& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) {
    throw_corrupt(file.path(), fmt::format("{} bytes", file.size()), "a safetensors header of 8 or more");
  }
  file.read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > largest_header || length > file.size() - sizeof length) {
    throw_corrupt(file.path(), fmt::format("a header length of {}", length),
                  fmt::format("at most {}", std::min(largest_header, file.size() - sizeof length)));
  }
  std::string text(length, '\0');
  file.read_at(sizeof length, std::as_writable_bytes(std::span(text)));
  const json header = json::parse(text, nullptr, false);
  if (!header.is_object()) throw_corrupt(file.path(), "a header that is no JSON object", "{\"name\": ...}");

  std::map<std::string, Entry> index;
  const std::uint64_t data_begin = sizeof length + length;
  for (const auto& [name, value] : header.items()) {
    if (name != metadata_name) index.emplace(name, parse_entry(file, name, value, data_begin));
  }
  check_no_gaps(file, index, data_begin);
  return index;
}

}  // namespace safetensors
}  // namespace ddl
