#include "nmt_example/report/chart.hpp"

#include <cairo/cairo-svg.h>
#include <cairo/cairo.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <span>

#include "ddl/error.hpp"
#include "nmt_example/report/axis.hpp"

namespace nmt {
namespace {

constexpr double chart_width = 480, chart_height = 260, heading_height = 40;
constexpr double left = 74, right = 16, top = 34, bottom = 44;  // around a chart's lines
constexpr double png_scale = 2;
constexpr std::size_t most_points = 160;

struct Destroy {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
  void operator()(cairo_t* cairo) const { cairo_destroy(cairo); }
};
using Surface = std::unique_ptr<cairo_surface_t, Destroy>;

cairo_status_t append(void* to, const unsigned char* bytes, unsigned count) {
  static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(bytes), count);
  return CAIRO_STATUS_SUCCESS;
}

void require_success(cairo_status_t status) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  throw ddl::Error(ddl::ErrorCode::internal,
                   fmt::format("the charts cannot be drawn: {}", cairo_status_to_string(status)));
}

/// Points that follow one another, as one.
struct Bin {
  double step, mean, least, most;
};

std::vector<Bin> bins_of(const ChartLine& line, bool logarithmic) {
  std::vector<Point> points = line.points;
  // Axes are computed with a multiple of the values.
  constexpr double least = 1e-300, most = 1e300;
  std::erase_if(points, [&](const Point& p) {
    return !(std::abs(p.value) <= most) || (logarithmic && p.value < least);
  });
  const std::size_t each = line.marks ? 1 : (points.size() + most_points - 1) / most_points;
  std::vector<Bin> bins;
  for (std::size_t begin = 0; begin < points.size(); begin += each) {
    const auto part = std::span(points).subspan(begin, std::min(each, points.size() - begin));
    Bin bin{0, 0, part.front().value, part.front().value};
    for (const Point& p : part) {
      bin.step += p.step / static_cast<double>(part.size());
      bin.mean += p.value / static_cast<double>(part.size());
      bin.least = std::min(bin.least, p.value);
      bin.most = std::max(bin.most, p.value);
    }
    bins.push_back(bin);
  }
  return bins;
}

/// One chart on a part of the picture, whose upper left corner is the origin.
class ChartDrawing {
 public:
  ChartDrawing(cairo_t* cairo, const Chart& chart, double last_step)
      : cairo_(cairo),
        chart_(chart),
        steps_(0, std::max(1.0, last_step), Scale::linear, 6),
        values_(axis_of_values()) {}

  void draw() {
    text(left, top - 14, 0, chart_.title, true);
    grid();
    cairo_save(cairo_);
    cairo_rectangle(cairo_, left, top, width, height);
    cairo_clip(cairo_);
    for (std::size_t i = 0; i < bins_.size(); ++i) range(bins_[i]);
    for (std::size_t i = 0; i < bins_.size(); ++i) line(i);
    cairo_restore(cairo_);
    if (bins_.size() > 1) legend();
  }

 private:
  static constexpr double width = chart_width - left - right, height = chart_height - top - bottom;

  Axis axis_of_values() {
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (const ChartLine& line : chart_.lines) {
      bins_.push_back(bins_of(line, chart_.logarithmic));
      for (const Bin& bin : bins_.back()) {
        least = std::min(least, bin.least);
        most = std::max(most, bin.most);
      }
    }
    if (least > most) least = most = 1;  // there is no point
    return {least, most, chart_.logarithmic ? Scale::logarithmic : Scale::linear_to_labels, 6};
  }

  [[nodiscard]] double x(double step) const { return left + width * steps_.position(step); }
  [[nodiscard]] double y(double value) const { return top + height * (1 - values_.position(value)); }

  /// `align`: where the text begins (0), has its middle (0.5) or ends (1) at `at_x`.
  void text(double at_x, double at_y, double align, const std::string& words, bool bold = false) {
    cairo_select_font_face(cairo_, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo_, bold ? 12 : 11);
    cairo_set_source_rgb(cairo_, 0, 0, 0);
    cairo_text_extents_t extents;
    cairo_text_extents(cairo_, words.c_str(), &extents);
    cairo_move_to(cairo_, at_x - align * extents.x_advance, at_y);
    cairo_show_text(cairo_, words.c_str());
  }

  void stroke(double grey, double thickness) {
    cairo_set_source_rgb(cairo_, grey, grey, grey);
    cairo_set_line_width(cairo_, thickness);
    cairo_stroke(cairo_);
  }

  void grid() {
    for (const double step : steps_.labels()) {
      cairo_move_to(cairo_, x(step), top);
      cairo_line_to(cairo_, x(step), top + height);
      stroke(0.88, 0.7);
      text(x(step), top + height + 15, 0.5, steps_.text(step));
    }
    for (const double value : values_.labels()) {
      cairo_move_to(cairo_, left, y(value));
      cairo_line_to(cairo_, left + width, y(value));
      stroke(0.88, 0.7);
      text(left - 6, y(value) + 4, 1, values_.text(value));
    }
    cairo_rectangle(cairo_, left, top, width, height);
    stroke(0, 0.8);
    text(left + width / 2, chart_height - 12, 0.5, "step (updates)");
    cairo_save(cairo_);
    cairo_translate(cairo_, 14, top + height / 2);
    cairo_rotate(cairo_, -std::numbers::pi / 2);
    text(0, 0, 0.5, chart_.unit);
    cairo_restore(cairo_);
  }

  void range(const std::vector<Bin>& bins) {
    if (bins.size() < most_points / 2) return;
    for (const Bin& bin : bins) cairo_line_to(cairo_, x(bin.step), y(bin.most));
    for (auto bin = bins.rbegin(); bin != bins.rend(); ++bin)
      cairo_line_to(cairo_, x(bin->step), y(bin->least));
    cairo_close_path(cairo_);
    cairo_set_source_rgb(cairo_, 0.82, 0.82, 0.82);
    cairo_fill(cairo_);
  }

  void set_dashes(std::size_t line) {
    static constexpr std::array<std::array<double, 4>, 4> dashes = {
        {{0, 0, 0, 0}, {7, 4, 7, 4}, {2, 3, 2, 3}, {9, 3, 2, 3}}};
    const auto& pattern = dashes[line % dashes.size()];
    cairo_set_dash(cairo_, pattern.data(), pattern[0] > 0 ? 4 : 0, 0);
  }

  /// A mark of the line's own form.
  void mark(std::size_t line, double at_x, double at_y) {
    const double r = 3.2;
    const std::size_t corners[] = {0, 4, 3, 5};
    const std::size_t n = corners[line % 4];
    cairo_new_sub_path(cairo_);
    if (n == 0) cairo_arc(cairo_, at_x, at_y, r, 0, 2 * std::numbers::pi);
    for (std::size_t i = 0; i < n; ++i) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(n);
      cairo_line_to(cairo_, at_x + r * std::sin(angle), at_y - r * std::cos(angle));
    }
    cairo_close_path(cairo_);
    cairo_set_source_rgb(cairo_, 1, 1, 1);
    cairo_fill_preserve(cairo_);
    stroke(0, 1);
  }

  void line(std::size_t i) {
    set_dashes(i);
    for (const Bin& bin : bins_[i]) cairo_line_to(cairo_, x(bin.step), y(bin.mean));
    stroke(0, 1.3);
    cairo_set_dash(cairo_, nullptr, 0, 0);
    if (!chart_.lines[i].marks) return;
    for (const Bin& bin : bins_[i]) mark(i, x(bin.step), y(bin.mean));
  }

  /// Above the lines, from the right.
  void legend() {
    double end = left + width;
    for (std::size_t i = bins_.size(); i-- > 0;) {
      const std::string& name = chart_.lines[i].name;
      text(end, top - 14, 1, name);
      cairo_text_extents_t extents;
      cairo_text_extents(cairo_, name.c_str(), &extents);
      end -= extents.x_advance + 6;
      set_dashes(i);
      cairo_move_to(cairo_, end - 30, top - 18);
      cairo_line_to(cairo_, end, top - 18);
      stroke(0, 1.3);
      cairo_set_dash(cairo_, nullptr, 0, 0);
      if (chart_.lines[i].marks) mark(i, end - 15, top - 18);
      end -= 44;
    }
  }

  cairo_t* cairo_;
  const Chart& chart_;
  std::vector<std::vector<Bin>> bins_;  // of the lines
  Axis steps_;
  Axis values_;
};

void draw_all(cairo_t* cairo, const std::string& heading, const std::vector<Chart>& charts) {
  cairo_set_source_rgb(cairo, 1, 1, 1);
  cairo_paint(cairo);
  cairo_set_source_rgb(cairo, 0, 0, 0);
  cairo_select_font_face(cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_BOLD);
  cairo_set_font_size(cairo, 14);
  cairo_move_to(cairo, 16, 26);
  cairo_show_text(cairo, heading.c_str());
  double last_step = 1;
  for (const Chart& chart : charts) {
    for (const ChartLine& line : chart.lines) {
      for (const Point& point : line.points) last_step = std::max(last_step, point.step);
    }
  }
  for (std::size_t i = 0; i < charts.size(); ++i) {
    cairo_save(cairo);
    cairo_translate(cairo, chart_width * static_cast<double>(i % 2),
                    heading_height + chart_height * static_cast<double>(i / 2));
    ChartDrawing(cairo, charts[i], last_step).draw();
    cairo_restore(cairo);
  }
}

}  // namespace

std::string draw(const std::string& heading, const std::vector<Chart>& charts, ImageFormat format) {
  const double width = 2 * chart_width;
  const double height = heading_height + chart_height * static_cast<double>((charts.size() + 1) / 2);
  const bool is_png = format == ImageFormat::png;
  std::string bytes;
  const Surface surface(is_png ? cairo_image_surface_create(CAIRO_FORMAT_RGB24,
                                                            static_cast<int>(png_scale * width),
                                                            static_cast<int>(png_scale * height))
                               : cairo_svg_surface_create_for_stream(append, &bytes, width, height));
  const std::unique_ptr<cairo_t, Destroy> cairo(cairo_create(surface.get()));
  if (is_png) cairo_scale(cairo.get(), png_scale, png_scale);
  draw_all(cairo.get(), heading, charts);
  require_success(cairo_status(cairo.get()));
  if (is_png) require_success(cairo_surface_write_to_png_stream(surface.get(), append, &bytes));
  cairo_surface_finish(surface.get());
  require_success(cairo_surface_status(surface.get()));
  return bytes;
}

}  // namespace nmt
