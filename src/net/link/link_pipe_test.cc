// LinkOutbox and LinkInbox together: bytes that the one writes go into the other, cut anywhere,
// over connections that end anywhere.
#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/link/link_inbox.h"
#include "src/net/link/link_outbox.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Recorder final : public LinkInbox::Sink {
 public:
  absl::StatusOr<absl::Span<char>> PlaceFor(LinkService, absl::string_view,
                                            size_t payload_bytes) override {
    if (payload_bytes <= unplaced) return absl::Span<char>();
    place.assign(payload_bytes, '\0');
    return absl::MakeSpan(place.data(), place.size());
  }
  absl::Status Message(LinkService service, absl::string_view header,
                       absl::Span<char> payload) override {
    messages.push_back(absl::StrCat(static_cast<int>(service), " ", header, " ",
                                    absl::string_view(payload.data(), payload.size())));
    return absl::OkStatus();
  }
  absl::Status Acknowledged(uint64_t received) override {
    acknowledged = received;
    return absl::OkStatus();
  }
  absl::Status Welcome(const WelcomeBody&, uint64_t) override { return absl::OkStatus(); }
  absl::Status End(const absl::Status& why) override { return why; }

  size_t unplaced = 20;
  std::vector<char> place;
  std::vector<std::string> messages;
  uint64_t acknowledged = 0;
};

// Writes up to `bytes` of the outbox, and returns them.
std::string Write(LinkOutbox& outbox, size_t bytes, uint64_t received = 0) {
  std::string written;
  std::vector<iovec> pieces;
  outbox.Gather(received, 64, pieces);
  for (const iovec& piece : pieces) {
    written.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  }
  written.resize(std::min(written.size(), bytes));
  outbox.Wrote(written.size());
  return written;
}

absl::Status Feed(LinkInbox& inbox, std::string bytes) {
  // As a stream does: first into the place, then into the staging block.
  const absl::Span<char> place = inbox.PayloadPlace();
  const size_t placed = std::min(place.size(), bytes.size());
  std::memcpy(place.data(), bytes.data(), placed);
  const absl::Status status = inbox.Placed(placed);
  if (!status.ok()) return status;
  return inbox.Feed(absl::MakeSpan(bytes.data() + placed, bytes.size() - placed));
}

TEST(LinkPipe, MessagesArriveWithHeaderServiceAndPayload) {
  LinkOutbox outbox;
  outbox.Add(LinkService::kMessages, "first", "payload", nullptr);
  outbox.Add(LinkService::kGroups, "", "", nullptr);
  Recorder recorder;
  LinkInbox inbox(recorder);
  PHALANX_EXPECT_OK(Feed(inbox, Write(outbox, SIZE_MAX, /*received=*/77)));
  EXPECT_THAT(recorder.messages, ElementsAre("1 first payload", "2  "));
  EXPECT_EQ(recorder.acknowledged, 77u);
  EXPECT_TRUE(outbox.all_written());
  PHALANX_EXPECT_OK(outbox.Acknowledge(inbox.received()));
  EXPECT_TRUE(outbox.empty());
}

TEST(LinkPipe, PayloadsAreKeptUntilTheyAreAcknowledged) {
  LinkOutbox outbox;
  auto keep = std::make_shared<std::string>("kept");
  outbox.Add(LinkService::kGroups, "h", *keep, keep);
  const size_t size = Write(outbox, SIZE_MAX).size();
  PHALANX_EXPECT_OK(outbox.Acknowledge(size - 1));
  EXPECT_EQ(keep.use_count(), 2);
  PHALANX_EXPECT_OK(outbox.Acknowledge(size));
  EXPECT_EQ(keep.use_count(), 1);
  // A count that is behind says nothing new.
  PHALANX_EXPECT_OK(outbox.Acknowledge(3));
  EXPECT_THAT(outbox.Acknowledge(size + 1), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(LinkPipe, RefusesToResumeWhereNoFrameCanGoOn) {
  LinkOutbox outbox;
  outbox.Add(LinkService::kGroups, "header", "payload", nullptr);
  const size_t size = Write(outbox, SIZE_MAX).size();
  EXPECT_THAT(outbox.Resume(5), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("header")));
  PHALANX_EXPECT_OK(outbox.Resume(size));
  EXPECT_THAT(outbox.Resume(0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("acknowledged")));
}

TEST(LinkPipe, RefusesALargePayloadWithoutAPlaceAndADamagedHeader) {
  LinkOutbox outbox;
  const auto large = std::make_shared<std::string>(LinkInbox::kMaxUnplacedBytes + 1, 'x');
  outbox.Add(LinkService::kGroups, "h", *large, large);
  std::string bytes = Write(outbox, SIZE_MAX);
  Recorder recorder;
  recorder.unplaced = SIZE_MAX;
  LinkInbox inbox(recorder);
  EXPECT_THAT(Feed(inbox, bytes), StatusIs(absl::StatusCode::kResourceExhausted));
  bytes[kLinkHeaderBytes] ^= 1;
  LinkInbox again(recorder);
  EXPECT_THAT(Feed(again, bytes), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(recorder.messages, IsEmpty());
}

TEST(LinkPipe, AWelcomeComesFirstOrNotAtAll) {
  const std::string welcome =
      LinkFrame(LinkFrameType::kWelcome, 0, EncodeBody(WelcomeBody{LinkVerdict::kAccepted, 1, 0}));
  Recorder recorder;
  LinkInbox asked(recorder);
  asked.NewConnection(/*welcome_first=*/true);
  PHALANX_EXPECT_OK(Feed(asked, welcome));
  EXPECT_THAT(Feed(asked, welcome), StatusIs(absl::StatusCode::kInvalidArgument));
  LinkInbox again(recorder);
  again.NewConnection(/*welcome_first=*/true);
  EXPECT_THAT(Feed(again, LinkFrame(LinkFrameType::kAck, 0, "")),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// A run over many connections. Each ends after a random number of bytes, some of which are lost.
void RunOverBrokenConnections(uint64_t seed) {
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  LinkOutbox outbox;
  std::vector<std::string> expected;
  for (int i = 0; i < 60; ++i) {
    const auto payload = std::make_shared<std::string>(random.Below(random.Chance(0.2) ? 200 : 30),
                                                       static_cast<char>('a' + i % 26));
    outbox.Add(LinkService::kGroups, absl::StrCat(i), *payload,
               random.Chance(0.5) ? payload : nullptr);
    expected.push_back(absl::StrCat("2 ", i, " ", *payload));
  }
  Recorder recorder;
  LinkInbox inbox(recorder);
  for (int connection = 0; !outbox.empty(); ++connection) {
    ASSERT_LT(connection, 1000);
    inbox.NewConnection(/*welcome_first=*/false);
    PHALANX_ASSERT_OK(outbox.Resume(inbox.received()));
    while (!outbox.all_written() && !random.Chance(0.05)) {
      std::string bytes = Write(outbox, random.Below(100));
      const bool breaks = random.Chance(0.05);
      if (breaks) bytes.resize(random.Below(bytes.size() + 1));
      PHALANX_ASSERT_OK(Feed(inbox, bytes));
      if (breaks) break;
      if (random.Chance(0.8)) continue;
      PHALANX_ASSERT_OK(outbox.Acknowledge(inbox.received()));
    }
    if (!outbox.all_written()) continue;
    PHALANX_ASSERT_OK(outbox.Resume(inbox.received()));
  }
  EXPECT_EQ(recorder.messages, expected);
}

TEST(LinkPipe, EveryMessageArrivesOnceOverConnectionsThatBreakAnywhere) {
  const uint64_t first = ::phalanx::testing::TestSeed(1);
  const uint64_t seeds = ::phalanx::testing::SeedGiven() ? 1 : 500;
  for (uint64_t seed = first; seed < first + seeds && !::testing::Test::HasFailure(); ++seed) {
    RunOverBrokenConnections(seed);
  }
}

}  // namespace
}  // namespace phalanx::net
