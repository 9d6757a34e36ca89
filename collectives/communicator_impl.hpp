#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "collectives/executor.hpp"
#include "collectives/transport.hpp"
#include "ddl/data_type.hpp"
#include "ddl/topology/rank_map.hpp"
#include "ddl/topology/schedule.hpp"

namespace ddl::collectives {

enum class AllReduceAlgorithm : std::uint8_t { ring, hierarchical };

struct CommunicatorSettings {
  int rank = 0;
  topology::RankMap map{{""}};
  AllReduceAlgorithm all_reduce = AllReduceAlgorithm::ring;
  std::chrono::milliseconds deadline{std::chrono::seconds(600)};
  int spins = 0;  ///< See `Executor`.
};

/// What stands behind `ddl::Communicator`: it chooses the lowering, keeps the steps of earlier calls
/// so that a repeated one allocates nothing, and runs them.
class CommunicatorImpl {
 public:
  /// `transport` may be null in a job of one rank.
  CommunicatorImpl(CommunicatorSettings settings, std::unique_ptr<Transport> transport);
  ~CommunicatorImpl();

  [[nodiscard]] int rank() const noexcept { return settings_.rank; }
  [[nodiscard]] int size() const noexcept { return settings_.map.ranks(); }
  [[nodiscard]] const topology::RankMap& rank_map() const noexcept { return settings_.map; }

  void all_reduce(void* data, std::size_t count, DataType type, ReduceOp op);
  void broadcast(void* data, std::size_t bytes, int root);
  void barrier();

  /// Calls made while one of these lives wait for as long as it takes.
  class PausedDeadline {
   public:
    explicit PausedDeadline(CommunicatorImpl& communicator) : communicator_(communicator) {
      ++communicator_.pauses_;
    }
    PausedDeadline(const PausedDeadline&) = delete;
    PausedDeadline& operator=(const PausedDeadline&) = delete;
    ~PausedDeadline() { --communicator_.pauses_; }

   private:
    CommunicatorImpl& communicator_;
  };

  /// True once a collective has thrown half-way: the streams are out of step from then on, and
  /// later calls throw `transport`.
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// Tells the peers that this rank will not go on. Does nothing the second time.
  void announce_failure();
  /// Gives the transport back, having told the peers; later collectives throw `transport`.
  void close();

 private:
  enum class Kind : std::uint8_t { all_reduce, broadcast, barrier };
  struct Key {
    Kind kind;
    int root;
    std::size_t count;
    std::size_t element;
    auto operator<=>(const Key&) const = default;
  };
  const topology::Steps& steps_for(const Key& key);
  void execute(const Key& key, Operation operation);

  CommunicatorSettings settings_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Executor> executor_;
  std::map<Key, topology::Steps> schedules_;
  std::uint64_t sequence_ = 0;
  int pauses_ = 0;
  bool failed_ = false;
  bool announced_ = false;
  bool closed_ = false;
};

}  // namespace ddl::collectives
