// Inspects documents for the tests of the command-line tools.
//   check_document json FILE POINTER...
//     Prints the values at these JSON pointers, one per line; a list or object as its length.
//   check_document lines FILE POINTER
//     Does the same for each line of a file of JSON lines.
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using nlohmann::json;

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void print(const json& document, const char* pointer) {
  const json& value = document.at(json::json_pointer(pointer));
  if (value.is_array() || value.is_object()) {
    std::cout << value.size() << '\n';
  } else if (value.is_string()) {
    std::cout << value.get<std::string>() << '\n';
  } else {
    std::cout << value << '\n';
  }
}

int run(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[1] : "";
  if (kind == "json") {
    const json document = json::parse(read(argv[2]));
    for (int i = 3; i < argc; ++i) print(document, argv[i]);
    return 0;
  }
  if (kind == "lines" && argc == 4) {
    std::ifstream file(argv[2]);
    for (std::string line; std::getline(file, line);) print(json::parse(line), argv[3]);
    return 0;
  }
  std::cerr << "usage: check_document json FILE POINTER... | lines FILE POINTER\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
