#pragma once

#include <algorithm>
#include <cstdint>

#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

inline constexpr auto longest_goodbye = std::chrono::seconds(10);

/// Layout of UCX's 64-bit tags: goodbye flag (1 bit), fingerprint (12), communicator (13), call (7), message
/// (15), source rank (16). Calls and messages are taken modulo their range; tags that collide are matched in
/// the order in which they were sent and received.
struct UcxTag {
  static constexpr int rank_bits = 16;
  static constexpr int message_bits = 15;
  static constexpr int call_bits = 7;
  static constexpr int communicator_bits = 13;
  static constexpr int fingerprint_bits = 12;
  static constexpr std::int64_t most_ranks = std::int64_t{1} << rank_bits;
  static constexpr int communicators = 1 << communicator_bits;

  static constexpr std::uint64_t of(MessageTag tag, int source) {
    std::uint64_t bits = tag.fingerprint & ((1U << fingerprint_bits) - 1);
    bits = bits << communicator_bits | tag.communicator;
    bits = bits << call_bits | (tag.call & ((1U << call_bits) - 1));
    bits = bits << message_bits | (tag.message & ((1U << message_bits) - 1));
    return bits << rank_bits | static_cast<std::uint64_t>(source);
  }
  /// The tag of the message by which `source` leaves normally.
  static constexpr std::uint64_t goodbye(int source) {
    return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(source);
  }

  static constexpr int call_shift = rank_bits + message_bits;
  static constexpr int communicator_shift = call_shift + call_bits;
  static constexpr int fingerprint_shift = communicator_shift + communicator_bits;
  /// Mask of the bits in which all messages of one call and source agree, whatever is called, in both
  /// channels.
  static constexpr std::uint64_t same_call =
      ((std::uint64_t{1} << rank_bits) - 1) |
      (((std::uint64_t{1} << fingerprint_shift) - 1) & ~((std::uint64_t{2} << communicator_shift) - 1)) |
      (((std::uint64_t{1} << call_bits) - 1) << call_shift) | std::uint64_t{1} << 63;
  /// Whether two tags that agree in these bits are of different collectives or channels.
  static constexpr bool is_other(std::uint64_t found, std::uint64_t expected) {
    return found >> fingerprint_shift != expected >> fingerprint_shift ||
           ((found ^ expected) >> communicator_shift & 1) != 0;
  }
};
static_assert(UcxTag::rank_bits + UcxTag::message_bits + UcxTag::call_bits + UcxTag::communicator_bits +
                  UcxTag::fingerprint_bits ==
              63);

/// Layout of MPI's tags, within the width that the MPI library allows (MPI_TAG_UB): communicator (up to 9
/// bits), call (8), message (12 to 14). If there are too few bits, part of the communicator's number selects
/// one of several duplicates of the MPI communicator.
class MpiTags {
 public:
  static constexpr int call_bits = 8;
  static constexpr int least_message_bits = 12;
  static constexpr int most_message_bits = 14;
  static constexpr int most_communicator_bits = 9;
  static constexpr int most_copy_bits = 4;
  static constexpr int least_bits = call_bits + least_message_bits;

  struct Place {
    int copy;  ///< Index of the duplicate of the MPI communicator.
    int tag;
  };

  /// `largest`: the greatest tag, at least 2^20 - 1.
  explicit constexpr MpiTags(std::int64_t largest) {
    int bits = 0;
    while (bits < 31 && ((std::int64_t{2} << bits) - 1) <= largest) ++bits;
    inner_bits_ = std::min(bits - least_bits, most_communicator_bits);
    copy_bits_ = std::min(most_communicator_bits - inner_bits_, most_copy_bits);
    message_bits_ = std::min(bits - call_bits - inner_bits_, most_message_bits);
  }

  [[nodiscard]] constexpr int copies() const { return 1 << copy_bits_; }
  [[nodiscard]] constexpr int communicators() const { return 1 << (inner_bits_ + copy_bits_); }
  /// `tag.communicator` must be below `communicators()`.
  [[nodiscard]] constexpr Place of(MessageTag tag) const {
    int bits = tag.communicator >> copy_bits_;
    bits = bits << call_bits | (tag.call & ((1 << call_bits) - 1));
    bits = bits << message_bits_ | static_cast<int>(tag.message & ((1U << message_bits_) - 1));
    return {tag.communicator & ((1 << copy_bits_) - 1), bits};
  }

 private:
  int inner_bits_ = 0;
  int copy_bits_ = 0;
  int message_bits_ = 0;
};

}  // namespace ddl::collectives
