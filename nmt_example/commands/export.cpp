#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ddl/checkpoint.hpp"
#include "ddl/error.hpp"
#include "nmt_example/commands/command.hpp"
#include "nmt_example/commands/loaded_model.hpp"
#include "nmt_example/training/host_mirror.hpp"

namespace nmt {
namespace {

/// The contents of a safetensors file: https://github.com/huggingface/safetensors. The README lists what is
/// in it.
class SafetensorsFile {
 public:
  void add(const std::string& name, const char* type, const std::vector<std::int64_t>& shape,
           std::string_view bytes) {
    header_[name] = {
        {"dtype", type}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  void describe(const std::string& name, const std::string& text) { header_["__metadata__"][name] = text; }

  [[nodiscard]] std::string bytes() const {
    std::string head = header_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    head.resize((head.size() + 7) / 8 * 8, ' ');  // the tensors are aligned
    std::string result;
    for (std::uint64_t left = head.size(), i = 0; i < 8; ++i, left >>= 8)
      result += static_cast<char>(left & 255);
    return result + head + data_;
  }

 private:
  nlohmann::ordered_json header_ = {{"__metadata__", {{"format", "ddl_nmt 1"}}}};
  std::string data_;
};

void write_model(ddl::Context& context, ParsedOptions parsed) {
  context.on_all_ranks("check the flags", [&] {
    for (const auto& [flag, value] :
         {std::pair("model", &parsed.options.model), std::pair("out", &parsed.options.out)}) {
      if (!value->empty()) continue;
      throw ddl::Error(ddl::ErrorCode::invalid_argument,
                       fmt::format("--{} is missing: export needs --model and --out", flag));
    }
  });
  context.root_only("look at the output file", [&] {
    if (!std::filesystem::exists(parsed.options.out)) return;
    throw ddl::Error(ddl::ErrorCode::invalid_argument,
                     fmt::format("--out={}: is there already; give a new name", parsed.options.out));
  });
  parsed.options.infer = true;
  const LoadedModel loaded = load_model(context, parsed, "model", parsed.options.model);
  HostMirror parameters(*loaded.backend, values_of(loaded.model->parameters()));
  parameters.download();
  context.root_only("write the model", [&] {
    SafetensorsFile file;
    file.describe("options", to_json(loaded.options));
    for (const ddl::NamedTensor& tensor : parameters.tensors()) {
      file.add(tensor.name, "F32", tensor.shape,
               {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
    }
    const auto& [source, target] = loaded.vocabularies();
    for (const auto& [name, vocabulary] :
         {std::pair("source.vocabulary", &source), std::pair("target.vocabulary", &target)}) {
      const std::string bytes = vocabulary->serialize();
      file.add(name, "U8", {static_cast<std::int64_t>(bytes.size())}, bytes);
    }
    ddl::write_file_atomically(parsed.options.out, file.bytes());
  });
}

}  // namespace

Command export_command() {
  return {{.name = "export",
           .purpose = "Writes a model as one safetensors file, for other programs",
           .example = "  ddl_nmt export --model=model/best_bleu --out=model.safetensors\n"
                      "  python3 nmt_example/translate_exported.py model.safetensors < in.en > out.de",
           .flags = {"model", "out"}},
          write_model};
}

}  // namespace nmt
