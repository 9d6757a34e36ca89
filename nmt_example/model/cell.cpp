#include "nmt_example/model/cell.hpp"

#include "nmt_example/model/lstm_cell.hpp"

namespace nmt {

std::unique_ptr<Cell> make_cell(ParameterLayout& layout, const std::string& name, std::int64_t inputs,
                                const ModelShape& shape) {
  return std::make_unique<LstmCell>(layout, name, inputs, shape.units, shape.forget_bias);
}

}  // namespace nmt
