#include "topology/graph/xml_document.hpp"

#include <expat.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "topology/refuse.hpp"

namespace ddl::topology {
namespace {

constexpr std::size_t most_elements = 65'536;
constexpr std::size_t most_depth = 64;
constexpr std::size_t most_bytes = std::size_t{1} << 30U;  // Expat's sizes are int

struct FreeParser {
  void operator()(XML_Parser parser) const { XML_ParserFree(parser); }
};

/// Exceptions must not cross Expat, which is C: callbacks keep the first problem and stop the parser.
class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source), parser_(XML_ParserCreate(nullptr)) {
    if (!parser_) throw std::bad_alloc();
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), on_start, on_end);
  }

  XmlElement parse(std::string_view text) {
    if (text.size() > most_bytes) {
      fail(fmt::format("{} bytes", text.size()), fmt::format("at most {}", most_bytes));
    }
    const bool is_whole = XML_Parse(parser_.get(), text.data(), static_cast<int>(text.size()), XML_TRUE) != 0;
    if (problem_) std::rethrow_exception(problem_);
    if (!is_whole) fail(XML_ErrorString(XML_GetErrorCode(parser_.get())), "well-formed XML, whole");
    return std::move(root_.children.front());  // Expat guarantees a root element
  }

 private:
  static void on_start(void* self, const XML_Char* name, const XML_Char** attributes) noexcept {
    Parser& parser = *static_cast<Parser*>(self);
    if (parser.problem_) return;
    try {
      parser.start(name, attributes);
    } catch (...) {
      parser.problem_ = std::current_exception();
      XML_StopParser(parser.parser_.get(), XML_FALSE);
    }
  }
  static void on_end(void* self, const XML_Char*) { static_cast<Parser*>(self)->open_.pop_back(); }

  void start(const XML_Char* name, const XML_Char** attributes) {
    if (++elements_ > most_elements) fail("more elements", fmt::format("at most {}", most_elements));
    if (open_.size() > most_depth) fail("elements nested deeper", fmt::format("at most {} deep", most_depth));
    XmlElement& element = open_.back()->children.emplace_back();
    element.name = name;
    element.line = XML_GetCurrentLineNumber(parser_.get());
    for (; *attributes != nullptr; attributes += 2)
      element.attributes.emplace_back(attributes[0], attributes[1]);
    open_.push_back(&element);
  }

  [[noreturn]] void fail(std::string_view found, std::string_view expected) const {
    fail_with(ErrorCode::corrupt_data, "{}: line {}: found {}, expected {}", source_,
              XML_GetCurrentLineNumber(parser_.get()), found, expected);
  }

  std::string source_;
  std::unique_ptr<std::remove_pointer_t<XML_Parser>, FreeParser> parser_;
  XmlElement root_;
  std::vector<XmlElement*> open_{&root_};  // stable addresses: each is its parent's last child
  std::size_t elements_ = 0;
  std::exception_ptr problem_;
};

}  // namespace

const std::string* XmlElement::attribute(std::string_view wanted) const {
  const auto found = std::ranges::find(attributes, wanted, &std::pair<std::string, std::string>::first);
  return found == attributes.end() ? nullptr : &found->second;
}

XmlElement parse_xml(std::string_view text, std::string_view source) { return Parser(source).parse(text); }

}  // namespace ddl::topology
