#pragma once

#include <memory>

#include "nmt_example/model/decoder.hpp"
#include "nmt_example/model/projection.hpp"

namespace nmt {

/// A model's layers. They declare their parameters, always in the same order, so that several networks of a
/// shape share one `ParameterSet`.
struct Network {
  Network(ParameterLayout& layout, const ModelShape& shape)
      : encoder(make_encoder(layout, shape)),
        decoder(layout, shape, encoder->depth()),
        projection(layout, shape, decoder.output_columns()) {
    decoder.declare_last(layout);
  }

  std::unique_ptr<Encoder> encoder;
  Decoder decoder;
  OutputProjection projection;
};

/// The parameters of a model.
inline ParameterLayout parameter_layout(const ModelShape& shape) {
  ParameterLayout layout;
  const Network network(layout, shape);
  return layout;
}

}  // namespace nmt
