#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "nmt_example/backend/backend.hpp"

namespace nmt::test {

/// fp32's unit roundoff: one operation's relative error.
inline constexpr double fp32_roundoff = 0x1p-24;

/// A matrix in the test's memory.
struct Values {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<double> data;

  Values() = default;
  Values(std::int64_t rows_, std::int64_t cols_, double value = 0)
      : rows(rows_), cols(cols_), data(static_cast<std::size_t>(rows_ * cols_), value) {}

  double& operator()(std::int64_t r, std::int64_t c) { return data[static_cast<std::size_t>(r * cols + c)]; }
  double operator()(std::int64_t r, std::int64_t c) const {
    return data[static_cast<std::size_t>(r * cols + c)];
  }
  [[nodiscard]] double largest() const {
    double result = 0;
    for (const double x : data) result = std::max(result, std::abs(x));
    return result;
  }
  /// A copy with every element x replaced by f(x).
  template <typename F>
  [[nodiscard]] Values map(F f) const {
    Values result = *this;
    for (double& x : result.data) x = f(x);
    return result;
  }
  [[nodiscard]] Values abs() const {
    return map([](double x) { return std::abs(x); });
  }
  [[nodiscard]] Values times(double factor) const {
    return map([factor](double x) { return factor * x; });
  }
};

inline double dot(const Values& a, const Values& b) {
  EXPECT_EQ(a.data.size(), b.data.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) sum += a.data[i] * b.data[i];
  return sum;
}

/// Whether |actual - expected| <= bound everywhere. NaN and infinity are never close to anything.
inline testing::AssertionResult close(const Values& actual, const Values& expected, const Values& bound) {
  if (actual.rows != expected.rows || actual.cols != expected.cols ||
      bound.data.size() != expected.data.size())
    return testing::AssertionFailure() << "shapes differ: " << actual.rows << "x" << actual.cols << " and "
                                       << expected.rows << "x" << expected.cols;
  for (std::int64_t r = 0; r < expected.rows; ++r)
    for (std::int64_t c = 0; c < expected.cols; ++c)
      if (!(std::abs(actual(r, c) - expected(r, c)) <= bound(r, c)) || !std::isfinite(bound(r, c)))
        return testing::AssertionFailure()
               << "element (" << r << ", " << c << ") of " << expected.rows << "x" << expected.cols << " is "
               << actual(r, c) << ", expected " << expected(r, c) << " +- " << bound(r, c);
  return testing::AssertionSuccess();
}

inline testing::AssertionResult close(const Values& actual, const Values& expected, double bound) {
  return close(actual, expected, Values(expected.rows, expected.cols, bound));
}

/// Random inputs for backends, all exact in fp32.
class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}

  Values values(std::int64_t rows, std::int64_t cols, double low = -1, double high = 1) {
    std::uniform_real_distribution<double> distribution(low, high);
    return Values(rows, cols).map([&](double) {
      return static_cast<double>(static_cast<float>(distribution(engine_)));
    });
  }
  /// Random integers in [low, high].
  std::vector<std::int32_t> integers(std::int64_t count, std::int32_t low, std::int32_t high) {
    std::uniform_int_distribution<std::int32_t> distribution(low, high);
    std::vector<std::int32_t> result(static_cast<std::size_t>(count));
    for (auto& x : result) x = distribution(engine_);
    return result;
  }

 private:
  std::mt19937 engine_;
};

enum class Layout {
  contiguous,
  strided,  ///< A view inside a larger matrix of NaN, which must be neither read nor written.
  aligned,  ///< The same, with rows that begin at multiples of 16 bytes.
};

inline std::string name_of(Layout layout) {
  return layout == Layout::contiguous ? "Contiguous" : layout == Layout::strided ? "Strided" : "Aligned";
}
inline void PrintTo(Layout layout, std::ostream* out) { *out << name_of(layout); }

/// Tensors in a backend's memory. The destructor checks that memory around the views has not been written.
class Memory {
 public:
  explicit Memory(Backend& backend, Layout layout = Layout::strided) : backend_(backend), layout_(layout) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    for (const Frame& frame : frames_) expect_untouched(frame);
  }

  Backend* operator->() { return &backend_; }
  Backend& backend() { return backend_; }

  /// A tensor filled with 7, which detects an operation that adds instead of assigning.
  Tensor tensor(std::int64_t rows, std::int64_t cols) { return tensor(Values(rows, cols, 7)); }
  Tensor tensor(const Values& values) { return tensor(values, layout_); }
  Tensor tensor(const Values& values, Layout layout) { return tensor(values, layout, backend_.type()); }
  Tensor tensor(const Values& values, Layout layout, ddl::DataType type) {
    if (layout == Layout::contiguous) {
      const Tensor result = raw(values.rows, values.cols, type);
      write(result, values);
      return result;
    }
    const std::int64_t margin = layout == Layout::aligned ? 8 : 3;
    const std::int64_t columns = layout == Layout::aligned ? aligned_stride(values.cols) : values.cols;
    const Tensor whole = raw(values.rows + 2, columns + 2 * margin, type);
    write(whole, Values(whole.rows, whole.cols, std::numeric_limits<double>::quiet_NaN()));
    const Tensor view = whole.row_range(1, values.rows).col_range(margin, values.cols);
    write(view, values);
    frames_.push_back({whole, margin, values.cols});
    return view;
  }
  /// A contiguous tensor of zeros, fp64 on every backend.
  Tensor sums(std::int64_t count) { return raw(1, count, ddl::DataType::f64); }
  Tensor sums(const std::vector<float>& values) {
    const Tensor result = sums(static_cast<std::int64_t>(values.size()));
    backend_.upload(result, values);
    return result;
  }

  Indices indices(const std::vector<std::int32_t>& values) {
    owned_.push_back(backend_.allocate(values.size() * sizeof(std::int32_t)));
    const Indices result{static_cast<std::int32_t*>(owned_.back().get()),
                         static_cast<std::int64_t>(values.size())};
    backend_.upload(result, values);
    return result;
  }

  const PhiloxKey* key(const DropoutKey& key) {
    const PhiloxKey words = key.philox_key();
    owned_.push_back(backend_.allocate(sizeof(words)));
    backend_.upload_bytes(owned_.back().get(), std::as_bytes(std::span(&words, 1)));
    return static_cast<const PhiloxKey*>(owned_.back().get());
  }

  /// Writes values in the backend's full precision, as finite differences need.
  void write(const Tensor& to, const Values& values) {
    if (backend_.name() == "reference") {
      for (std::int64_t r = 0; r < to.rows; ++r)
        for (std::int64_t c = 0; c < to.cols; ++c) to.as<double>()[r * to.stride + c] = values(r, c);
    } else {
      backend_.upload(to, std::vector<float>(values.data.begin(), values.data.end()));
    }
  }

  Values read(const Tensor& from) {
    Values result(from.rows, from.cols);
    backend_.download(from, std::span<double>(result.data));
    return result;
  }

 private:
  struct Frame {
    Tensor whole;
    std::int64_t margin, cols;
  };

  Tensor raw(std::int64_t rows, std::int64_t cols, ddl::DataType type) {
    owned_.push_back(backend_.allocate(static_cast<std::size_t>(rows * cols) * ddl::size_of(type)));
    return {owned_.back().get(), rows, cols, cols, type};
  }

  void expect_untouched(const Frame& frame) {
    const Values whole = read(frame.whole);
    std::int64_t written = 0;
    for (std::int64_t r = 0; r < whole.rows; ++r)
      for (std::int64_t c = 0; c < whole.cols; ++c) {
        const bool inside =
            r >= 1 && r < whole.rows - 1 && c >= frame.margin && c < frame.margin + frame.cols;
        if (!inside && !std::isnan(whole(r, c))) ++written;
      }
    EXPECT_EQ(written, 0) << "elements written outside a view of " << whole.rows - 2 << "x" << frame.cols;
  }

  Backend& backend_;
  Layout layout_;
  std::vector<std::shared_ptr<void>> owned_;
  std::vector<Frame> frames_;
};

struct BackendCase {
  const char* name;
  std::unique_ptr<Backend> (*make)();
  /// The reason why this machine cannot run it; empty if it can.
  std::string (*why_not)() = [] { return std::string(); };
};

inline void PrintTo(const BackendCase& backend, std::ostream* out) { *out << backend.name; }

/// The backends under test; each test program defines them.
std::vector<BackendCase> backends_under_test();
/// Those whose 16-bit types are tested, a case for each type.
std::vector<BackendCase> narrow_backends();
/// The backends that are compared with the reference.
inline std::vector<BackendCase> fp32_backends() {
  std::vector<BackendCase> backends = backends_under_test();
  std::erase_if(backends,
                [](const BackendCase& backend) { return backend.name == std::string("Reference"); });
  return backends;
}

/// Makes a backend for a fixture. If this machine cannot run it, skips the test and returns the reference, so
/// that the fixture can be constructed.
inline std::unique_ptr<Backend> make_or_skip(const BackendCase& backend) {
  const std::string why_not = backend.why_not();
  if (why_not.empty()) return backend.make();
  [&] { GTEST_SKIP() << why_not; }();
  return make_reference_backend();
}

/// The derivative of `loss` with respect to `x` from five points (error of order step^4).
inline double finite_difference(double& x, const std::function<double()>& loss, double step = 1e-3) {
  const double original = x;
  const auto at = [&](double offset) {
    x = original + offset;
    return loss();
  };
  const double result = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
  x = original;
  return result;
}

/// Checks `gradient` (computed by a backward pass) against the finite differences of `loss` with
/// respect to each element of `x`, which lies in the reference backend's memory.
inline void expect_gradient(const std::string& name, const Tensor& x, const Values& gradient,
                            const std::function<double()>& loss) {
  Values numeric(x.rows, x.cols);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      numeric(r, c) = finite_difference(x.as<double>()[r * x.stride + c], loss);
  const double largest = numeric.largest();
  EXPECT_GT(largest, 1e-3) << name << ": a loss that does not depend on it proves nothing";
  EXPECT_TRUE(close(gradient, numeric, numeric.map([&](double g) {
    return 1e-7 * std::abs(g) + 1e-8 * largest;
  }))) << "gradient of "
       << name;
}

}  // namespace nmt::test
