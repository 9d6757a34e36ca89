#include "nmt_example/hidden_memory_backend.hpp"

#include <sys/mman.h>

#include <list>
#include <stdexcept>
#include <utility>

#include "nmt_example/backend/wrapped_backend.hpp"

namespace nmt::test {
namespace {

struct Block {
  void* data;
  std::size_t bytes;
};

class HiddenMemoryBackend final : public WrappedBackend {
 public:
  HiddenMemoryBackend() : WrappedBackend(make_cpu_backend(1)) {}
  [[nodiscard]] std::string name() const override { return "hidden"; }
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

 private:
  void before(const Work&) override { protect(PROT_READ | PROT_WRITE); }
  void after(const Work&) override { protect(PROT_NONE); }
  void protect(int access) {
    for (const Block& block : *blocks_) {
      if (mprotect(block.data, block.bytes, access) != 0) throw std::runtime_error("mprotect failed");
    }
  }

  std::shared_ptr<std::list<Block>> blocks_ = std::make_shared<std::list<Block>>();
};

}  // namespace

std::unique_ptr<Backend> make_hidden_memory_backend() { return std::make_unique<HiddenMemoryBackend>(); }

}  // namespace nmt::test
