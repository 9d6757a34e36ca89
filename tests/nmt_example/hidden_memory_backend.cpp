#include "nmt_example/hidden_memory_backend.hpp"

#include <sys/mman.h>

#include <list>
#include <stdexcept>
#include <utility>

namespace nmt::test {
namespace {

struct Block {
  void* data;
  std::size_t bytes;
};

class HiddenMemoryBackend final : public Backend {
 public:
  [[nodiscard]] std::string name() const override { return "hidden"; }
  [[nodiscard]] ddl::DataType type() const override { return ddl::DataType::f32; }
  [[nodiscard]] bool host_accessible() const override { return false; }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    const std::size_t size = (bytes / 4096 + 1) * 4096;
    void* const data = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    const auto block = blocks_->insert(blocks_->end(), {data, size});
    return {data, [blocks = blocks_, block](void* memory) {
              munmap(memory, block->bytes);
              blocks->erase(block);
            }};
  }
  void upload(const Tensor& to, std::span<const float> from) override {
    open([&] { cpu_->upload(to, from); });
  }
  void upload(const Indices& to, std::span<const std::int32_t> from) override {
    open([&] { cpu_->upload(to, from); });
  }
  void download(const Tensor& from, std::span<float> to) override {
    open([&] { cpu_->download(from, to); });
  }
  void download(const Tensor& from, std::span<double> to) override {
    open([&] { cpu_->download(from, to); });
  }
  void zero(const Tensor& x) override {
    open([&] { cpu_->zero(x); });
  }
  void copy(const Tensor& from, const Tensor& to) override {
    open([&] { cpu_->copy(from, to); });
  }
  void add(const Tensor& from, const Tensor& to) override {
    open([&] { cpu_->add(from, to); });
  }
  void gather_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    open([&] { cpu_->gather_rows(from, rows, to); });
  }
  void scatter_rows(const Tensor& from, const Indices& rows, const Tensor& to) override {
    open([&] { cpu_->scatter_rows(from, rows, to); });
  }
  void gemm(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
            const Tensor& c) override {
    open([&] { cpu_->gemm(ta, tb, a, b, accumulate, c); });
  }
  void add_row(const Tensor& row, const Tensor& to) override {
    open([&] { cpu_->add_row(row, to); });
  }
  void add_column_sums(const Tensor& x, const Tensor& to) override {
    open([&] { cpu_->add_column_sums(x, to); });
  }
  void embedding_backward(const Tensor& gradient, const Indices& ids, const Tensor& table_gradient) override {
    open([&] { cpu_->embedding_backward(gradient, ids, table_gradient); });
  }
  void dropout(const Tensor& x, const Tensor& y, const DropoutKey& key, double rate, const Indices& samples,
               std::int64_t first_position, std::int64_t first_column) override {
    open([&] { cpu_->dropout(x, y, key, rate, samples, first_position, first_column); });
  }
  void lstm_cell_forward(const LstmStep& step) override {
    open([&] { cpu_->lstm_cell_forward(step); });
  }
  void lstm_cell_backward(const LstmStepBackward& step) override {
    open([&] { cpu_->lstm_cell_backward(step); });
  }
  void cell_rows(CellOperation operation, const CellRows& rows) override {
    open([&] { cpu_->cell_rows(operation, rows); });
  }
  void attention_forward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                         const Tensor& keys, const Tensor& memory, const Indices& lengths,
                         const Tensor& weights, const Tensor& context) override {
    open([&] { cpu_->attention_forward(shape, score, query, keys, memory, lengths, weights, context); });
  }
  void attention_backward(const AttentionShape& shape, const AttentionScore& score, const Tensor& query,
                          const Tensor& keys, const Tensor& memory, const Indices& lengths,
                          const Tensor& weights, const Tensor& d_context, const Tensor& d_scores,
                          const Tensor& d_query) override {
    open([&] {
      cpu_->attention_backward(shape, score, query, keys, memory, lengths, weights, d_context, d_scores,
                               d_query);
    });
  }
  void attention_memory_backward(const AttentionShape& shape, const AttentionScore& score,
                                 const Tensor& query, const Tensor& keys, const Indices& lengths,
                                 const Tensor& weights, const Tensor& d_scores, const Tensor& d_context,
                                 const Tensor& d_keys, const Tensor& d_memory,
                                 const AttentionScore& d_score) override {
    open([&] {
      cpu_->attention_memory_backward(shape, score, query, keys, lengths, weights, d_scores, d_context,
                                      d_keys, d_memory, d_score);
    });
  }
  void scaled_direction(const Tensor& v, const Tensor& g, const Tensor& out) override {
    open([&] { cpu_->scaled_direction(v, g, out); });
  }
  void scaled_direction_backward(const Tensor& v, const Tensor& g, const Tensor& d_out, const Tensor& d_v,
                                 const Tensor& d_g) override {
    open([&] { cpu_->scaled_direction_backward(v, g, d_out, d_v, d_g); });
  }
  [[nodiscard]] std::int64_t logits_rows(std::int64_t vocabulary) const override {
    return cpu_->logits_rows(vocabulary);
  }
  void softmax_cross_entropy(const Tensor& logits, const Indices& targets, double label_smoothing,
                             bool gradient, const Tensor& sums) override {
    open([&] { cpu_->softmax_cross_entropy(logits, targets, label_smoothing, gradient, sums); });
  }
  void log_softmax(const Tensor& logits) override {
    open([&] { cpu_->log_softmax(logits); });
  }
  void update(UpdateRule rule, const UpdateTensors& tensors, const UpdateSettings& settings) override {
    open([&] { cpu_->update(rule, tensors, settings); });
  }

 private:
  template <typename Operation>
  void open(Operation operation) {
    protect(PROT_READ | PROT_WRITE);
    operation();
    protect(PROT_NONE);
  }
  void protect(int access) {
    for (const Block& block : *blocks_) {
      if (mprotect(block.data, block.bytes, access) != 0) throw std::runtime_error("mprotect failed");
    }
  }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  std::shared_ptr<std::list<Block>> blocks_ = std::make_shared<std::list<Block>>();
};

}  // namespace

std::unique_ptr<Backend> make_hidden_memory_backend() { return std::make_unique<HiddenMemoryBackend>(); }

}  // namespace nmt::test
