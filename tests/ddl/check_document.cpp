// Inspects documents for the tests of the command-line tools.
//   check_document json FILE POINTER...
//     Prints the values at these JSON pointers, one per line; a list or object as its length.
//   check_document lines FILE POINTER
//     Does the same for each line of a file of JSON lines.
//   check_document svg FILE
//     Checks that the picture is well-formed, that no two texts overlap and that all texts are inside the
//     picture. Prints the number of texts.
#include <expat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

struct Text {
  double left = 0, right = 0, top = 0, bottom = 0;
  std::string words;
};

struct Svg {
  double width = 0, height = 0;
  double x = 0, y = 0, size = 0;
  std::string anchor;
  bool in_text = false;
  std::string words;
  std::vector<Text> texts;
};

std::string attribute(const char** attributes, const char* name) {
  for (; attributes[0] != nullptr; attributes += 2) {
    if (std::strcmp(attributes[0], name) == 0) return attributes[1];
  }
  return "0";
}

void on_start(void* user, const char* name, const char** attributes) {
  auto& svg = *static_cast<Svg*>(user);
  if (std::strcmp(name, "svg") == 0) {
    svg.width = std::stod(attribute(attributes, "width"));
    svg.height = std::stod(attribute(attributes, "height"));
  }
  svg.in_text = std::strcmp(name, "text") == 0;
  if (!svg.in_text) return;
  svg.x = std::stod(attribute(attributes, "x"));
  svg.y = std::stod(attribute(attributes, "y"));
  svg.size = std::stod(attribute(attributes, "font-size"));
  svg.anchor = attribute(attributes, "text-anchor");
  svg.words.clear();
}

void on_words(void* user, const char* words, int length) {
  auto& svg = *static_cast<Svg*>(user);
  if (svg.in_text) svg.words.append(words, static_cast<std::size_t>(length));
}

void on_end(void* user, const char* name) {
  auto& svg = *static_cast<Svg*>(user);
  if (std::strcmp(name, "text") != 0) return;
  svg.in_text = false;
  // Narrower than most fonts, so that texts that overlap here overlap with every font.
  const double width = static_cast<double>(svg.words.size()) * svg.size * 0.5;
  const double left = svg.anchor == "end"      ? svg.x - width
                      : svg.anchor == "middle" ? svg.x - width / 2
                                               : svg.x;
  svg.texts.push_back({left, left + width, svg.y - 0.7 * svg.size, svg.y, svg.words});
}

int check_svg(const std::string& text) {
  Svg svg;
  const XML_Parser parser = XML_ParserCreate(nullptr);
  XML_SetUserData(parser, &svg);
  XML_SetElementHandler(parser, on_start, on_end);
  XML_SetCharacterDataHandler(parser, on_words);
  const bool is_well_formed =
      XML_Parse(parser, text.data(), static_cast<int>(text.size()), 1) == XML_STATUS_OK;
  if (!is_well_formed) {
    std::cerr << "line " << XML_GetCurrentLineNumber(parser) << ": "
              << XML_ErrorString(XML_GetErrorCode(parser)) << '\n';
  }
  XML_ParserFree(parser);
  if (!is_well_formed) return 1;
  int problems = 0;
  for (std::size_t i = 0; i < svg.texts.size(); ++i) {
    const Text& a = svg.texts[i];
    if (a.left < 0 || a.right > svg.width || a.top < 0 || a.bottom > svg.height) {
      std::cerr << "outside the picture: " << a.words << '\n';
      ++problems;
    }
    for (std::size_t j = i + 1; j < svg.texts.size(); ++j) {
      const Text& b = svg.texts[j];
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) {
        std::cerr << "overlap: " << a.words << " and " << b.words << '\n';
        ++problems;
      }
    }
  }
  std::cout << svg.texts.size() << '\n';
  return problems > 0 ? 1 : 0;
}

int run(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[1] : "";
  if (kind == "svg") return check_svg(read(argv[2]));
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
  std::cerr << "usage: check_document json FILE POINTER... | lines FILE POINTER | svg FILE\n";
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
