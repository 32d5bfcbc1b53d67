#include "src/cli/bench/raw_links.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime::bench {
namespace {

TEST(RawLinksTest, EveryRankReceivesAllBytesOfEachShape) {
  constexpr int kWorld = 4;
  constexpr uint64_t kBytes = 1'000'003;
  std::vector<std::unique_ptr<RawLinks>> links;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < kWorld; ++rank) {
    links.push_back(std::make_unique<RawLinks>(rank, kWorld, absl::Seconds(60)));
    absl::StatusOr<std::string> address = links.back()->Listen("127.0.0.1");
    ASSERT_TRUE(address.ok()) << address.status();
    addresses.push_back(*address);
  }
  std::vector<absl::Status> results(kWorld);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([&links, &addresses, &results, rank] {
      results[rank].Update(links[rank]->Connect(addresses));
      results[rank].Update(links[rank]->Pair(kBytes));
      results[rank].Update(links[rank]->Chain(kBytes));
      results[rank].Update(links[rank]->Star(kBytes));
      results[rank].Update(links[rank]->Chain(0));
      results[rank].Update(links[rank]->FoldingChain(kBytes));
      for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{5}, kBytes}) {
        results[rank].Update(links[rank]->Ring(bytes, /*fold=*/false, /*copy=*/true));
        results[rank].Update(links[rank]->Ring(bytes, /*fold=*/true, /*copy=*/false));
        results[rank].Update(links[rank]->Ring(bytes, /*fold=*/true, /*copy=*/true));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST(RawLinksTest, ADeadRankReturnsAnErrorToOtherRanks) {
  constexpr absl::Duration kTimeout = absl::Milliseconds(50);
  RawLinks root(0, 2, kTimeout);
  RawLinks silent(1, 2, kTimeout);
  const absl::StatusOr<std::string> first = root.Listen("127.0.0.1");
  const absl::StatusOr<std::string> second = silent.Listen("127.0.0.1");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(absl::IsUnavailable(root.Connect({*first, *second})));

  // Rank 0's first call waits for the connection there.
  ASSERT_TRUE(silent.Connect({*first, *second}).ok());
  ASSERT_TRUE(root.Connect({*first, *second}).ok());
  EXPECT_TRUE(absl::IsUnavailable(root.Star(1))) << "rank 1 sends nothing";
  EXPECT_TRUE(absl::IsUnavailable(root.Pair(uint64_t{1} << 30))) << "rank 1 takes nothing";
}

TEST(RawLinksTest, RejectsAddressOfAnotherHost) {
  RawLinks links(0, 2, absl::Seconds(60));
  EXPECT_FALSE(links.Listen("203.0.113.1").ok());
  EXPECT_FALSE(links.Listen("no such host").ok());
}

}  // namespace
}  // namespace phalanx::runtime::bench
