// Cells whose activations have 16 bits, against the same cells in fp32.

#include <tuple>

#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

constexpr std::int64_t rows = 5, units = 67;

struct CellCase {
  const char* name;
  CellOperation operation;
  std::int64_t gate_columns, saved_columns = 0, scratch_columns = 0;
};

void PrintTo(const CellCase& c, std::ostream* out) { *out << c.name; }

std::vector<CellCase> cell_cases() {
  using enum CellOperation;
  return {{"GruReset", gru_reset, 3 * units, units},
          {"GruOutput", gru_output, 3 * units, units},
          {"GruOutputBackward", gru_output_backward, 3 * units, 0, units},
          {"GruResetBackward", gru_reset_backward, 3 * units, 0, units},
          {"LayerNormLstm", layer_norm_lstm, 4 * units, 5 * units + 5},
          {"LayerNormLstmBackward", layer_norm_lstm_backward, 4 * units, 5 * units + 5, 5 * units},
          {"Nas", nas, 8 * units, 8 * units},
          {"NasBackward", nas_backward, 8 * units, 8 * units}};
}

class NarrowCells : public testing::TestWithParam<std::tuple<BackendCase, CellCase>> {
 protected:
  [[nodiscard]] const CellCase& cell() const { return std::get<1>(GetParam()); }

  /// Of `type`, in a wider matrix.
  Tensor tensor(const Values& values, ddl::DataType type) {
    constexpr std::int64_t margin = 3;
    const std::int64_t stride = values.cols + margin;
    owned_.push_back(backend_->allocate(static_cast<std::size_t>(values.rows * stride) * ddl::size_of(type)));
    const Tensor x = Tensor(owned_.back().get(), values.rows, stride, stride, type).col_range(0, values.cols);
    memory_.write(x, values);
    return x;
  }

  /// Numbers that both types have.
  Values numbers(std::int64_t n, std::int64_t columns) {
    Values values = Random(static_cast<std::uint32_t>(n)).values(rows, columns, -1, 1);
    return memory_.read(tensor(values, backend_->narrow_type()));
  }

  /// All that the operation may write.
  std::vector<Values> results(ddl::DataType type) {
    const auto of_type = [&](std::int64_t n, std::int64_t columns) {
      return columns == 0 ? Tensor() : tensor(numbers(n, columns), type);
    };
    const auto full = [&](std::int64_t n, std::int64_t columns) {
      return columns == 0 ? Tensor() : tensor(numbers(n, columns), ddl::DataType::f32);
    };
    const CellRows step{.units = units,
                        .gates = of_type(1, cell().gate_columns),
                        .saved = of_type(2, cell().saved_columns),
                        .scratch = full(3, cell().scratch_columns),
                        .bias = memory_.tensor(Random(4).values(1, 5 * units)),
                        .gain = memory_.tensor(Random(5).values(1, 5 * units)),
                        .h_before = of_type(6, units),
                        .c_before = full(7, units),
                        .h = of_type(8, units),
                        .c = full(9, units),
                        .output = of_type(10, units),
                        .d_output = of_type(11, units),
                        .d_h = of_type(12, units),
                        .d_c = full(13, units),
                        .lengths = memory_.indices({9, 9, 2, 9, 9}),
                        .step = 4,
                        .forget_bias = 1};
    backend_->cell_rows(cell().operation, step);
    std::vector<Values> values;
    for (const Tensor& x :
         {step.gates, step.saved, step.scratch, step.h, step.c, step.output, step.d_h, step.d_c}) {
      values.push_back(memory_.read(x));
    }
    return values;
  }

  std::unique_ptr<Backend> backend_ = make_or_skip(std::get<0>(GetParam()));
  Memory memory_{*backend_, Layout::contiguous};
  std::vector<std::shared_ptr<void>> owned_;
};

// Training in mixed precision would compute with other rows, columns or states than fp32 training.
TEST_P(NarrowCells, AreThoseOfFp32Rounded) {
  if (IsSkipped()) return;
  const std::vector<Values> expected = results(ddl::DataType::f32);
  const std::vector<Values> found = results(backend_->narrow_type());
  const double unit = backend_->narrow_type() == ddl::DataType::f16 ? 0x1p-10 : 0x1p-7;
  // Layer normalisation reads values that it has rounded, and adds them up.
  const bool is_normed = cell().operation == CellOperation::layer_norm_lstm ||
                         cell().operation == CellOperation::layer_norm_lstm_backward;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double floor = is_normed ? unit * expected[i].largest() : 0x1p-24;
    EXPECT_TRUE(close(found[i], expected[i], expected[i].map([&](double x) {
      return unit * std::abs(x) + floor;
    }))) << "result "
         << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, NarrowCells,
                         testing::Combine(testing::ValuesIn(narrow_backends()),
                                          testing::ValuesIn(cell_cases())),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace nmt::test
