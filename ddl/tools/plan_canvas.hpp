#pragma once

#include <string>
#include <string_view>

namespace ddl::tools {

struct Point {
  double x = 0;
  double y = 0;
};

/// A rectangle by its top left corner and its size.
struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;

  [[nodiscard]] double middle() const { return x + width / 2; }
  [[nodiscard]] double right() const { return x + width; }
  [[nodiscard]] double bottom() const { return y + height; }
};

struct Stroke {
  std::string color;
  double width = 1;
  std::string dashes;
};

struct TextStyle {
  double size = 11;
  std::string color = "#1f2937";
  std::string anchor = "start";  ///< start, middle, end
  bool bold = false;
};

/// The approximate width of a text in a sans-serif font.
double text_width(std::string_view text, const TextStyle& style);

/// Collects SVG elements; later ones cover earlier ones. Lengths are px.
class Canvas {
 public:
  void rectangle(const Box& box, std::string_view fill, const Stroke& stroke, double radius = 0,
                 std::string_view tooltip = {});
  void line(Point from, Point to, const Stroke& stroke, std::string_view tooltip = {});
  /// `commands` as in SVG's `d`.
  void path(std::string_view commands, const Stroke& stroke, std::string_view fill = "none",
            std::string_view tooltip = {});
  void circle(Point center, double radius, std::string_view fill, std::string_view tooltip = {});
  /// `at` is on the baseline.
  void text(Point at, std::string_view text, const TextStyle& style);
  /// Draws a text on a white background, centred at `at`.
  void label(Point at, std::string_view text, const TextStyle& style);

  [[nodiscard]] std::string document(double width, double height, std::string_view title) const;

 private:
  void element(std::string_view name, std::string_view attributes, std::string_view tooltip);

  std::string elements_;
};

}  // namespace ddl::tools
