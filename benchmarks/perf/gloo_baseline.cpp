#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "ddl/error.hpp"
#include "perf/baseline.hpp"
#include "perf/element.hpp"

namespace perf {

using ddl::DataType;
using ddl::ReduceOp;
using ddl::topology::Collective;

namespace {

/// A key-value store by all-gathers: Gloo's ranks set the same number of values each, in the same order,
/// before they get those of the others, so each set can be an all-gather.
class GatheringStore : public gloo::rendezvous::Store {
 public:
  explicit GatheringStore(ddl::Context& context) : context_(context) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    // Format: key, 0, value.
    std::vector<char> own(key.begin(), key.end());
    own.push_back('\0');
    own.insert(own.end(), data.begin(), data.end());
    ddl::Communicator& communicator = context_.communicator();
    const auto n = static_cast<std::size_t>(context_.size());
    const auto length = static_cast<std::int64_t>(own.size());
    std::vector<std::int64_t> lengths(n);
    communicator.all_gather(&length, lengths.data(), 1, DataType::i64);
    const auto most = static_cast<std::size_t>(*std::ranges::max_element(lengths));
    own.resize(most);
    std::vector<char> all(most * n);
    communicator.all_gather(own.data(), all.data(), most, DataType::u8);
    for (std::size_t rank = 0; rank < n; ++rank) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * most);
      const auto end = begin + lengths[rank];
      const auto separator = std::find(begin, end, '\0');
      if (separator != end) values_[std::string(begin, separator)] = std::vector<char>(separator + 1, end);
    }
  }

  std::vector<char> get(const std::string& key) override {
    const auto found = values_.find(key);
    if (found == values_.end()) {
      throw ddl::Error(ddl::ErrorCode::internal,
                       fmt::format("--baseline gloo: Gloo asks for '{}', which no rank has set", key));
    }
    return found->second;
  }

  void wait(const std::vector<std::string>&) override {}

 private:
  ddl::Context& context_;
  std::map<std::string, std::vector<char>> values_;
};

using Function = void (*)(void*, const void*, const void*, std::size_t);

template <typename T>
Function function_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::min:
      return &gloo::min<T>;
    case ReduceOp::max:
      return &gloo::max<T>;
    case ReduceOp::prod:
      return &gloo::product<T>;
    default:
      return &gloo::sum<T>;
  }
}

/// Gloo has no bf16; it can move such elements but not reduce them.
template <typename T>
using GlooElement = std::conditional_t<is_float16<T>, gloo::float16, T>;

class GlooBaseline : public Baseline {
 public:
  explicit GlooBaseline(ddl::Context& context) : rank_(context.rank()) {
    gloo::transport::tcp::attr attributes;
    if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
      attributes.iface = interface;
    } else if (context.hosts() == 1) {
      attributes.hostname = "127.0.0.1";
    }
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto gloo_context = std::make_shared<gloo::rendezvous::Context>(context.rank(), context.size());
    GatheringStore store(context);
    gloo_context->connectFullMesh(store, device);
    context_ = std::move(gloo_context);
  }

  [[nodiscard]] bool can_run(const Call& call) const override {
    if (call.collective == Collective::reduce_scatter) return false;
    return !has_op(call.collective) || call.type != DataType::bf16;
  }

  void run(const Call& call) override {
    with_element(call.type,
                 [&](auto* type) { run_as<GlooElement<std::remove_pointer_t<decltype(type)>>>(call); });
  }
  void meet(ddl::Communicator&) override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

 private:
  template <typename T>
  void run_as(const Call& call) {
    auto* input = reinterpret_cast<T*>(const_cast<std::byte*>(call.input));
    auto* output = reinterpret_cast<T*>(call.output);
    switch (call.collective) {
      case Collective::all_reduce: {
        gloo::AllreduceOptions options(context_);
        if (!call.in_place) options.setInput(input, call.count);
        options.setOutput(output, call.count);
        options.setReduceFunction(function_of<T>(call.op));
        return gloo::allreduce(options);
      }
      case Collective::all_gather: {
        gloo::AllgatherOptions options(context_);
        if (!call.in_place) options.setInput(input, call.count);
        options.setOutput(output, call.count * static_cast<std::size_t>(context_->size));
        return gloo::allgather(options);
      }
      case Collective::broadcast: {
        gloo::BroadcastOptions options(context_);
        if (!call.in_place && rank_ == call.root) options.setInput(input, call.count);
        options.setOutput(output, call.count);
        options.setRoot(call.root);
        return gloo::broadcast(options);
      }
      case Collective::reduce: {
        gloo::ReduceOptions options(context_);
        if (!call.in_place) options.setInput(input, call.count);
        options.setOutput(output, call.count);
        options.setReduceFunction(function_of<T>(call.op));
        options.setRoot(call.root);
        return gloo::reduce(options);
      }
      default:
        return;
    }
  }

  int rank_;
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

std::unique_ptr<Baseline> make_gloo_baseline(ddl::Context& context) {
  try {
    return std::make_unique<GlooBaseline>(context);
  } catch (const gloo::Exception& error) {
    throw ddl::Error(ddl::ErrorCode::transport,
                     fmt::format("--baseline gloo: rank {} cannot connect: {}; GLOO_SOCKET_IFNAME names the "
                                 "network interface to use",
                                 context.rank(), error.what()));
  }
}

}  // namespace perf
