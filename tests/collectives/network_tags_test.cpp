#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>

#include "collectives/transports/network/message_tags.hpp"

namespace ddl::collectives {
namespace {

// Two messages would have the same tag, and a collective would get the data of another one.
TEST(UcxTag, TellsApartCommunicatorsCallsMessagesSourcesAndWhatIsCalled) {
  std::set<std::uint64_t> tags;
  int count = 0;
  for (const std::uint16_t communicator : {0, 1, UcxTag::communicators - 1}) {
    for (const std::uint16_t call : {0, 1, 63, 127}) {
      for (const std::uint32_t message : {0U, 1U, 4095U, 32767U}) {
        for (const std::uint32_t fingerprint : {0U, 1U, 4095U}) {
          for (const int source : {0, 1, 65535}) {
            tags.insert(UcxTag::of({communicator, call, message, fingerprint}, source));
            ++count;
          }
        }
      }
    }
  }
  for (const int source : {0, 1, 65535}) {
    tags.insert(UcxTag::goodbye(source));
    ++count;
  }
  EXPECT_EQ(tags.size(), static_cast<std::size_t>(count));
}

TEST(UcxTag, KeepsApartWhatIsUnderWayTogetherWhenNumbersWrap) {
  EXPECT_NE(UcxTag::of({1, 65535, 0}, 0), UcxTag::of({1, 0, 0}, 0));
  EXPECT_NE(UcxTag::of({1, 128 - 63, 0}, 0), UcxTag::of({1, 128, 0}, 0));
  EXPECT_NE(UcxTag::of({1, 0, 32768 - 4095}, 0), UcxTag::of({1, 0, 32768}, 0));
  EXPECT_EQ(UcxTag::of({1, 0, 32768}, 0), UcxTag::of({1, 0, 0}, 0));
}

// Ranks that make different calls would wait for each other until the deadline.
TEST(UcxTag, FindsMessagesOfTheSameCallThatCannotBePartOfIt) {
  const std::uint64_t expected = UcxTag::of({6, 5, 3, 77}, 9);
  const auto is_found = [&](MessageTag tag, int source) {
    const std::uint64_t other = UcxTag::of(tag, source);
    return ((other ^ expected) & UcxTag::same_call) == 0 && UcxTag::is_other(other, expected);
  };
  EXPECT_TRUE(is_found({6, 5, 3, 78}, 9));
  EXPECT_TRUE(is_found({6, 5, 100, 78}, 9)) << "whichever message";
  EXPECT_TRUE(is_found({7, 5, 3, 0}, 9)) << "of the channel beside it";
  EXPECT_FALSE(is_found({6, 5, 4, 77}, 9)) << "another message of this call";
  EXPECT_FALSE(is_found({6, 6, 3, 78}, 9)) << "of the next call";
  EXPECT_FALSE(is_found({8, 5, 3, 78}, 9)) << "of another communicator";
  EXPECT_FALSE(is_found({6, 5, 3, 78}, 8)) << "of another rank";
}

/// Largest tags: 2^31 - 1 in Open MPI; 2^28 - 1 and 2^23 - 1 in other MPIs and in Open MPI over UCX.
class MpiTagsTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(MpiTagsTest, TellApartWhatIsUnderWayTogetherAndFit) {
  const MpiTags tags(GetParam());
  std::set<std::pair<int, int>> places;
  int count = 0;
  for (const int communicator : {0, 1, 2, tags.communicators() - 2, tags.communicators() - 1}) {
    for (const std::uint16_t call : {0, 1, 63, 255}) {
      for (const std::uint32_t message : {0U, 1U, 4095U}) {
        const auto place = tags.of({static_cast<std::uint16_t>(communicator), call, message});
        EXPECT_GE(place.tag, 0);
        EXPECT_LE(place.tag, GetParam());
        EXPECT_GE(place.copy, 0);
        EXPECT_LT(place.copy, tags.copies());
        places.emplace(place.copy, place.tag);
        ++count;
      }
    }
  }
  EXPECT_EQ(places.size(), static_cast<std::size_t>(count));
}

INSTANTIATE_TEST_SUITE_P(Libraries, MpiTagsTest,
                         testing::Values((std::int64_t{1} << 31) - 1, (std::int64_t{1} << 28) - 1,
                                         (std::int64_t{1} << 23) - 1, (std::int64_t{1} << 20) - 1,
                                         3'000'000));

TEST(MpiTags, HaveRoomFor512Communicators) {
  EXPECT_EQ(MpiTags((std::int64_t{1} << 31) - 1).communicators(), 512);
  EXPECT_EQ(MpiTags((std::int64_t{1} << 31) - 1).copies(), 1);
  EXPECT_EQ(MpiTags((std::int64_t{1} << 23) - 1).communicators(), 128);
}

}  // namespace
}  // namespace ddl::collectives
