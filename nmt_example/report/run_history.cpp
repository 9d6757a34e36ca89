#include "nmt_example/report/run_history.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ddl/error.hpp"

namespace nmt {

RunHistory read_history(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw ddl::Error(ddl::ErrorCode::io, fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  RunHistory history;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (file.eof()) break;  // of a run that is still writing it
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number()) {
      throw ddl::Error(
          ddl::ErrorCode::corrupt_data,
          fmt::format("{}:{}: expected a JSON object with a step, as --log_jsonl writes them", path, number));
    }
    const double step = object["step"];
    for (const auto& [name, value] : object.items()) {
      if (name != "step" && value.is_number()) history[name].push_back({step, value});
    }
  }
  if (history.empty())
    throw ddl::Error(ddl::ErrorCode::corrupt_data,
                     fmt::format("{}: no step of training is in this log", path));
  return history;
}

}  // namespace nmt
