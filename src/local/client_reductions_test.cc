// The limits of one client's calls about reductions.
#include "src/local/client_reductions.h"

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::object_store {
namespace {

using ::phalanx::testing::StatusIs;

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

TEST(ClientReductionsTest, IdsCountUntilTheAnswer) {
  ClientReductions reductions;
  PHALANX_EXPECT_OK(reductions.Admit(kMaxReduceIds));
  EXPECT_THAT(reductions.Admit(0), StatusIs(kExhausted));
  reductions.Answered(kMaxReduceIds);
  PHALANX_EXPECT_OK(reductions.Admit(0));
}

TEST(ClientReductionsTest, ACancelledReduceIsCountedNoLonger) {
  ClientReductions reductions;
  PHALANX_EXPECT_OK(reductions.Admit(kMaxReduceIds));
  reductions.Add(5, 50, kMaxReduceIds);
  EXPECT_TRUE(reductions.Contains(5));
  EXPECT_EQ(reductions.Cancel(5), 50);
  EXPECT_EQ(reductions.Cancel(5), std::nullopt);
  EXPECT_FALSE(reductions.Remove(5)) << "the answer crossed the Cancel";
  PHALANX_EXPECT_OK(reductions.Admit(kMaxReduceIds));
}

TEST(ClientReductionsTest, WaitingRequestsAreAscending) {
  ClientReductions reductions;
  for (const uint64_t request : {9, 3, 7}) reductions.Add(request, request, 0);
  EXPECT_TRUE(reductions.Remove(7));
  EXPECT_EQ(reductions.requests(), (std::vector<uint64_t>{3, 9}));
}

TEST(ClientReductionsTest, RequestsForSourcesAreLimited) {
  ClientReductions reductions;
  for (size_t i = 0; i < kMaxReducedFromAnswers; ++i) {
    PHALANX_EXPECT_OK(reductions.AdmitSources());
  }
  EXPECT_THAT(reductions.AdmitSources(), StatusIs(kExhausted));
  reductions.SourcesAnswered();
  PHALANX_EXPECT_OK(reductions.AdmitSources());
}

}  // namespace
}  // namespace phalanx::object_store
