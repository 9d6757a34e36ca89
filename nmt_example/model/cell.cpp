#include "nmt_example/model/cell.hpp"

#include "nmt_example/model/gru_cell.hpp"
#include "nmt_example/model/layer_norm_lstm_cell.hpp"
#include "nmt_example/model/lstm_cell.hpp"
#include "nmt_example/model/nas_cell.hpp"

namespace nmt {

std::unique_ptr<Cell> make_cell(ParameterLayout& layout, const std::string& name, std::int64_t inputs,
                                const ModelShape& shape) {
  switch (shape.unit) {
    case UnitType::lstm:
      return std::make_unique<LstmCell>(layout, name, inputs, shape.units, shape.forget_bias);
    case UnitType::gru:
      return std::make_unique<GruCell>(layout, name, inputs, shape.units);
    case UnitType::layer_norm_lstm:
      return std::make_unique<LayerNormLstmCell>(layout, name, inputs, shape.units, shape.forget_bias);
    case UnitType::nas:
      return std::make_unique<NasCell>(layout, name, inputs, shape.units);
  }
  return nullptr;
}

}  // namespace nmt
