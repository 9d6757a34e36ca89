// Steps of cells, against the fp64 reference; and with activations of 16 bits, against the same in fp32.

#include <tuple>

#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

constexpr std::int64_t rows = 5;

struct CellCase {
  const char* name;
  CellOperation operation;
  std::int64_t gates, saved = 0, scratch = 0;  ///< Columns for each unit.
  std::int64_t more_saved = 0;                 ///< Columns besides.
};

void PrintTo(const CellCase& c, std::ostream* out) { *out << c.name; }

std::vector<CellCase> cell_cases() {
  using enum CellOperation;
  return {{"GruReset", gru_reset, 3, 1},
          {"GruOutput", gru_output, 3, 1},
          {"GruOutputBackward", gru_output_backward, 3, 0, 1},
          {"GruResetBackward", gru_reset_backward, 3, 0, 1},
          {"LayerNormLstm", layer_norm_lstm, 4, 5, 0, 5},
          {"LayerNormLstmBackward", layer_norm_lstm_backward, 4, 5, 5, 5},
          {"Nas", nas, 8, 8},
          {"NasBackward", nas_backward, 8, 8}};
}

class Cells : public testing::TestWithParam<std::tuple<BackendCase, CellCase>> {
 protected:
  [[nodiscard]] const CellCase& cell() const { return std::get<1>(GetParam()); }

  /// All that the operation may write, with activations of `type`.
  [[nodiscard]] std::vector<Values> results(Backend& backend, ddl::DataType type, std::int64_t units,
                                            bool has_lengths) const {
    Memory memory(backend, Layout::strided);
    const auto tensor = [&](std::uint32_t seed, std::int64_t columns, ddl::DataType of_type) {
      if (columns == 0) return Tensor();
      // Numbers that all types have.
      const Values values =
          Random(seed).values(rows, columns).map([](double x) { return std::round(128 * x) / 128; });
      return memory.tensor(values, Layout::strided, of_type);
    };
    const ddl::DataType full = backend.type();
    const CellRows step{.units = units,
                        .gates = tensor(1, cell().gates * units, type),
                        .saved = tensor(2, cell().saved * units + cell().more_saved, type),
                        .scratch = tensor(3, cell().scratch * units, full),
                        .bias = memory.tensor(Random(4).values(1, 5 * units)),
                        .gain = memory.tensor(Random(5).values(1, 5 * units)),
                        .h_before = tensor(6, units, type),
                        .c_before = tensor(7, units, full),
                        .h = tensor(8, units, type),
                        .c = tensor(9, units, full),
                        .output = tensor(10, units, type),
                        .d_output = tensor(11, units, type),
                        .d_h = tensor(12, units, type),
                        .d_c = tensor(13, units, full),
                        .lengths = has_lengths ? memory.indices({9, 9, 2, 9, 4}) : Indices(),
                        .step = 4,
                        .forget_bias = 1};
    memory->cell_rows(cell().operation, step);
    std::vector<Values> values;
    for (const Tensor& x :
         {step.gates, step.saved, step.scratch, step.h, step.c, step.output, step.d_h, step.d_c}) {
      values.push_back(memory.read(x));
    }
    return values;
  }

  std::unique_ptr<Backend> backend_ = make_or_skip(std::get<0>(GetParam()));
};

// Cells would compute something else on some devices, or change the state of rows that are masked.
TEST_P(Cells, AreThoseOfTheReference) {
  if (IsSkipped()) return;
  const auto reference = make_reference_backend();
  for (const std::int64_t units : {67, 300})
    for (const bool has_lengths : {false, true}) {
      SCOPED_TRACE(testing::Message() << units << " units" << (has_lengths ? ", lengths" : ""));
      const std::vector<Values> expected = results(*reference, reference->type(), units, has_lengths);
      const std::vector<Values> found = results(*backend_, backend_->type(), units, has_lengths);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(close(found[i], expected[i], 64 * fp32_roundoff * (1 + expected[i].largest())))
            << "result " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Fp32, Cells,
                         testing::Combine(testing::ValuesIn(fp32_backends()),
                                          testing::ValuesIn(cell_cases())),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + std::get<1>(test.param).name;
                         });

class NarrowCells : public Cells {};

// Training in mixed precision would compute with other rows, columns or states than fp32 training.
TEST_P(NarrowCells, AreThoseOfFp32Rounded) {
  if (IsSkipped()) return;
  const std::vector<Values> expected = results(*backend_, ddl::DataType::f32, 67, true);
  const std::vector<Values> found = results(*backend_, backend_->narrow_type(), 67, true);
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

INSTANTIATE_TEST_SUITE_P(Types, NarrowCells,
                         testing::Combine(testing::ValuesIn(narrow_backends()),
                                          testing::ValuesIn(cell_cases())),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + std::get<1>(test.param).name;
                         });

}  // namespace
}  // namespace nmt::test
