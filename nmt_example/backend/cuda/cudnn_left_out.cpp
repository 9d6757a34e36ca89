#include "ddl/error.hpp"
#include "nmt_example/backend/cuda/lstm_layers.hpp"

namespace nmt::cuda {

std::unique_ptr<LstmLayers> make_cudnn_lstm(cudaStream_t, bool) {
  throw ddl::Error(ddl::ErrorCode::unsupported,
                   "this program was built without cuDNN's headers; set DDL_CUDNN_INCLUDE_DIR to "
                   "the folder of cudnn.h, version 9 or later, or use --rnn=loop");
}

}  // namespace nmt::cuda
