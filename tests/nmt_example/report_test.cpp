// The pictures of ddl_nmt report, and what they are drawn from.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ddl/error.hpp"
#include "nmt_example/report/axis.hpp"
#include "nmt_example/report/chart.hpp"
#include "nmt_example/report/run_history.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"
#ifdef DDL_HAVE_CAIRO
#include <cairo/cairo.h>
#endif

namespace nmt {
namespace {

std::vector<std::string> labels_of(const Axis& axis) {
  std::vector<std::string> texts;
  for (const double label : axis.labels()) texts.push_back(axis.text(label));
  return texts;
}

using Texts = std::vector<std::string>;

// A person could not read a value off a chart.
TEST(ReportAxis, LabelsAreRoundAndFew) {
  EXPECT_EQ(labels_of({0, 1600, Scale::linear, 6}), (Texts{"0", "500", "1000", "1500"}));
  EXPECT_EQ(labels_of({0.12, 0.93, Scale::linear_to_labels, 6}),
            (Texts{"0", "0.2", "0.4", "0.6", "0.8", "1"}));
  EXPECT_EQ(labels_of({5200, 19000, Scale::linear_to_labels, 6}), (Texts{"5k", "10k", "15k", "20k"}));
  EXPECT_EQ(labels_of({1.3, 70, Scale::logarithmic, 6}), (Texts{"2", "5", "10", "20", "50"}));
  EXPECT_EQ(labels_of({3, 5e5, Scale::logarithmic, 6}), (Texts{"10", "100", "1000", "10k", "100k"}));
  const Axis steps(0, 1600, Scale::linear, 6);
  EXPECT_DOUBLE_EQ(steps.position(1600), 1);
  EXPECT_DOUBLE_EQ(Axis(1, 100, Scale::logarithmic, 6).position(10), 0.5);
  for (const Scale scale : {Scale::linear, Scale::linear_to_labels, Scale::logarithmic}) {
    const Axis same(3, 3, scale, 6);
    EXPECT_NEAR(same.position(3), 0.5, 0.2) << "of values that are all the same";
  }
}

// The report of a run that is still training would fail, or a wrong file would be drawn as an empty picture.
TEST(RunHistory, ReadsLogs) {
  const ddl::test::TemporaryDirectory directory;
  const std::string log = directory.write(
      "log.jsonl",
      "{\"step\": 1, \"loss\": 2.5, \"ppl\": null}\n{\"step\": 1, \"dev_ppl\": 9}\n{\"step\": 2, \"lo");
  const RunHistory history = read_history(log);
  ASSERT_EQ(history.size(), 2u);
  EXPECT_EQ(history.at("loss")[0].value, 2.5);
  EXPECT_EQ(history.at("dev_ppl")[0].step, 1);
  const std::string diary = directory.write("diary", "{\"step\": 1, \"loss\": 2}\ndear diary\n");
  const std::string empty = directory.write("empty", "");
  using ddl::test::expect_error;
  expect_error(ddl::ErrorCode::corrupt_data, {"diary:2"}, [&] { read_history(diary); });
  expect_error(ddl::ErrorCode::corrupt_data, {"empty", "no step"}, [&] { read_history(empty); });
  expect_error(ddl::ErrorCode::io, {"nowhere", "No such file"}, [] { read_history("nowhere"); });
}

std::vector<Chart> charts() {
  std::vector<Point> training;
  for (int step = 1; step <= 500; ++step)
    training.push_back({static_cast<double>(step), 2 + std::sin(0.1 * step)});
  training[7].value = std::numeric_limits<double>::quiet_NaN();
  training[8].value = 0;
  return {{"Loss", "nats", {{"training", training}}},
          {"Perplexity", "perplexity", {{"training", training}, {"dev", {{100, 5}, {200, 4}}, true}}, true},
          {"One point", "score", {{"", {{500, 31}}, true}}},
          {"Nothing", "score", {{"", {{1, std::nan("")}}}}}};
}

#ifdef DDL_HAVE_CAIRO
cairo_status_t read(void* from, unsigned char* to, unsigned count) {
  auto& left = *static_cast<std::string_view*>(from);
  if (left.size() < count) return CAIRO_STATUS_READ_ERROR;
  left.copy(reinterpret_cast<char*>(to), count);
  left.remove_prefix(count);
  return CAIRO_STATUS_SUCCESS;
}

// A printed report could not be read, or the file would be no picture.
TEST(Report, PicturesAreInBlackWhiteAndGrey) {
  const std::string svg = draw("a run", charts(), ImageFormat::svg);
  EXPECT_TRUE(svg.starts_with("<?xml")) << svg.substr(0, 100);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
  const std::string png = draw("a run", charts(), ImageFormat::png);
  std::string_view left = png;
  cairo_surface_t* image = cairo_image_surface_create_from_png_stream(read, &left);
  ASSERT_EQ(cairo_surface_status(image), CAIRO_STATUS_SUCCESS);
  const int width = cairo_image_surface_get_width(image), height = cairo_image_surface_get_height(image);
  EXPECT_EQ(width, 1920);
  const unsigned char* const pixels = cairo_image_surface_get_data(image);
  int dark = 0;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const unsigned char* const pixel = pixels + y * cairo_image_surface_get_stride(image) + 4 * x;
      ASSERT_TRUE(pixel[0] == pixel[1] && pixel[1] == pixel[2]) << "a colour at " << x << "," << y;
      dark += pixel[0] < 64 ? 1 : 0;
    }
  }
  EXPECT_GT(dark, 20000) << "lines and text are missing";
  cairo_surface_destroy(image);
}
#else
TEST(Report, ABuildWithoutCairoSaysSo) {
  ddl::test::expect_error(ddl::ErrorCode::unsupported, {"libcairo2-dev"},
                          [] { draw("a run", charts(), ImageFormat::svg); });
}
#endif

}  // namespace
}  // namespace nmt
