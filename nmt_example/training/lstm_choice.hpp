#pragma once

#include <string>

#include "ddl/context.hpp"
#include "nmt_example/data/dataset.hpp"
#include "nmt_example/model/model.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {

struct LstmChoice {
  LstmMethod method = LstmMethod::loop;
  std::string reason;  ///< For people; empty if there was nothing to choose.
};

/// Chooses for --rnn=auto how all ranks compute LSTM layers, and makes the backend do so. Keeps `saved`, a
/// method that an earlier part of the run chose. Else rank 0 computes a batch by each method that all ranks
/// have: the fastest is chosen whose gradients of the sentences' first words are the loop's, up to rounding.
/// Replaces the gradients. Collective; errors are agreed.
LstmChoice choose_lstm(ddl::Context& context, const Options& options, Backend& backend, Model& model,
                       const Dataset& train, const std::string& saved);

}  // namespace nmt
