#include "ddl/tools/plan_canvas.hpp"

#include <fmt/format.h>

#include <array>

namespace ddl::tools {
namespace {

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    constexpr std::array<std::string_view, 4> entities = {"&amp;", "&lt;", "&gt;", "&quot;"};
    const std::size_t special = std::string_view("&<>\"").find(c);
    if (special == std::string_view::npos) {
      result += c;
    } else {
      result += entities[special];
    }
  }
  return result;
}

std::string attributes_of(const Stroke& stroke) {
  if (stroke.color.empty()) return {};
  std::string text = fmt::format(R"( stroke="{}" stroke-width="{:.1f}")", stroke.color, stroke.width);
  if (!stroke.dashes.empty()) text += fmt::format(R"( stroke-dasharray="{}")", stroke.dashes);
  return text;
}

}  // namespace

double text_width(std::string_view text, const TextStyle& style) {
  return static_cast<double>(text.size()) * style.size * (style.bold ? 0.64 : 0.58);
}

void Canvas::element(std::string_view name, std::string_view attributes, std::string_view tooltip) {
  elements_ += fmt::format("<{} {}", name, attributes);
  elements_ += tooltip.empty() ? "/>\n" : fmt::format("><title>{}</title></{}>\n", escape(tooltip), name);
}

void Canvas::rectangle(const Box& box, std::string_view fill, const Stroke& stroke, double radius,
                       std::string_view tooltip) {
  element("rect",
          fmt::format(R"(x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{:.1f}" fill="{}"{})",
                      box.x, box.y, box.width, box.height, radius, fill, attributes_of(stroke)),
          tooltip);
}

void Canvas::line(Point from, Point to, const Stroke& stroke, std::string_view tooltip) {
  element("line",
          fmt::format(R"(x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"{})", from.x, from.y, to.x, to.y,
                      attributes_of(stroke)),
          tooltip);
}

void Canvas::path(std::string_view commands, const Stroke& stroke, std::string_view fill,
                  std::string_view tooltip) {
  element("path", fmt::format(R"(d="{}" fill="{}"{})", commands, fill, attributes_of(stroke)), tooltip);
}

void Canvas::circle(Point center, double radius, std::string_view fill, std::string_view tooltip) {
  element("circle",
          fmt::format(R"(cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill="{}")", center.x, center.y, radius, fill),
          tooltip);
}

void Canvas::text(Point at, std::string_view text, const TextStyle& style) {
  elements_ +=
      fmt::format(R"(<text x="{:.1f}" y="{:.1f}" font-size="{:.1f}" fill="{}" text-anchor="{}"{}>{}</text>)"
                  "\n",
                  at.x, at.y, style.size, style.color, style.anchor,
                  style.bold ? R"( font-weight="bold")" : "", escape(text));
}

void Canvas::label(Point at, std::string_view words, const TextStyle& style) {
  const double width = text_width(words, style) + 3;
  const double height = style.size + 2;
  rectangle({at.x - width / 2, at.y - height / 2, width, height}, "#ffffff", {}, 2);
  TextStyle centered = style;
  centered.anchor = "middle";
  text({at.x, at.y + style.size * 0.36}, words, centered);
}

std::string Canvas::document(double width, double height, std::string_view title) const {
  return fmt::format(
      R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="DejaVu Sans, Verdana, Helvetica, Arial, sans-serif">
<title>{2}</title>
<rect width="{0:.0f}" height="{1:.0f}" fill="#ffffff"/>
{3}</svg>
)",
      width, height, escape(title), elements_);
}

}  // namespace ddl::tools
