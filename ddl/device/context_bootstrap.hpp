#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/system/bootstrap.hpp"
#include "ddl/context.hpp"
#include "ddl/context/agreement.hpp"

namespace ddl::device {

/// A context's ranks as those who meet, for what is started beside its communicator.
class ContextBootstrap final : public collectives::Bootstrap {
 public:
  explicit ContextBootstrap(Context& context) : context_(context) {}
  [[nodiscard]] int rank() const noexcept override { return context_.rank(); }
  [[nodiscard]] int size() const noexcept override { return context_.size(); }
  std::vector<std::string> all_gather(std::string_view bytes) override {
    return gather_texts(context_, bytes);
  }
  void abort(int) noexcept override {}

 private:
  Context& context_;
};

}  // namespace ddl::device
