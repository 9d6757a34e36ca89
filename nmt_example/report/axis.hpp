#pragma once

#include <string>
#include <vector>

namespace nmt {

enum class Scale {
  linear,
  linear_to_labels,  ///< Reaches from a label to a label.
  logarithmic        ///< For values above 0.
};

/// An axis of a chart: which values are where, and which are labelled.
class Axis {
 public:
  /// From `least` to `most`, with at most so many labels, or one more.
  Axis(double least, double most, Scale scale, int most_labels);

  /// 0 at the start, 1 at the end.
  [[nodiscard]] double position(double value) const;
  [[nodiscard]] const std::vector<double>& labels() const noexcept { return labels_; }
  /// The text of a label, with k and M for thousands and millions where there are large labels.
  [[nodiscard]] std::string text(double label) const;

 private:
  void label_evenly(int most_labels);
  void label_powers(int most_labels);

  double least_;
  double most_;
  Scale scale_;
  std::vector<double> labels_;
};

}  // namespace nmt
