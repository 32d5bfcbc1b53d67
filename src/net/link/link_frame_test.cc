#include "src/net/link/link_frame.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/frame/frame.h"
#include "src/net/link/link_service.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

absl::string_view View(const LinkHeaderBytes& bytes) { return {bytes.data(), bytes.size()}; }

LinkHeader Message() {
  LinkHeader header;
  header.type = LinkFrameType::kMessage;
  header.service = static_cast<uint8_t>(LinkService::kGroups);
  header.body_bytes = kMaxLinkBodyBytes;
  header.payload_bytes = kMaxLinkPayloadBytes;
  header.body_check = 7;
  header.received = uint64_t{1} << 60;
  return header;
}

TEST(LinkFrame, HeadersSurviveEncoding) {
  LinkHeader ack;
  ack.received = 12;
  for (const LinkHeader& header : {Message(), ack}) {
    EXPECT_THAT(DecodeLinkHeader(View(EncodeLinkHeader(header))), IsOkAndHolds(header));
  }
}

TEST(LinkFrame, EveryDamagedByteOfAHeaderIsNoticed) {
  for (size_t i = 0; i < kLinkHeaderBytes; ++i) {
    LinkHeaderBytes bytes = EncodeLinkHeader(Message());
    bytes[i] ^= 1;
    EXPECT_THAT(DecodeLinkHeader(View(bytes)), StatusIs(absl::StatusCode::kInvalidArgument)) << i;
  }
  EXPECT_THAT(DecodeLinkHeader("short"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(LinkFrame, RefusesFieldsOutOfTheirLimits) {
  const auto expect_refused = [](LinkHeader header, absl::string_view why) {
    EXPECT_THAT(DecodeLinkHeader(View(EncodeLinkHeader(header))),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  LinkHeader header = Message();
  header.service = 0;
  expect_refused(header, "service 0");
  header.service = kLinkServices + 1;
  expect_refused(header, "service 3");
  header = Message();
  header.body_bytes = kMaxLinkBodyBytes + 1;
  expect_refused(header, "a body of 513 bytes");
  header = Message();
  header.payload_bytes = kMaxLinkPayloadBytes + 1;
  expect_refused(header, "a payload of 16777217 bytes");
  header = LinkHeader();
  header.payload_bytes = 1;
  expect_refused(header, "no message");
  header = LinkHeader();
  header.body_bytes = 1;
  expect_refused(header, "a long ACK");
  header = LinkHeader();
  header.type = static_cast<LinkFrameType>(5);
  expect_refused(header, "type 5");
}

TEST(LinkFrame, BodiesSurviveEncoding) {
  const WelcomeBody welcome = {LinkVerdict::kAccepted, 3, 4};
  EXPECT_THAT(DecodeWelcome(EncodeBody(welcome)), IsOkAndHolds(welcome));
  absl::Status why;
  PHALANX_EXPECT_OK(DecodeEnd(EncodeBody(absl::NotFoundError("no group")), why));
  EXPECT_THAT(why, StatusIs(absl::StatusCode::kNotFound, "no group"));
}

TEST(LinkFrame, ALongReasonIsCutToFit) {
  const std::string frame =
      LinkFrame(LinkFrameType::kEnd, 0, EncodeBody(absl::AbortedError(std::string(5000, 'x'))));
  EXPECT_EQ(frame.size(), kLinkHeaderBytes + kMaxLinkBodyBytes);
  absl::Status why;
  PHALANX_EXPECT_OK(DecodeEnd(absl::string_view(frame).substr(kLinkHeaderBytes), why));
  EXPECT_EQ(why.message(), std::string(kMaxLinkBodyBytes - 8, 'x'));
}

TEST(LinkFrame, RefusesBodiesThatContradictThemselves) {
  const auto expect_refused = [](const WelcomeBody& welcome) {
    EXPECT_THAT(DecodeWelcome(EncodeBody(welcome)), StatusIs(absl::StatusCode::kInvalidArgument));
  };
  expect_refused({LinkVerdict::kAccepted, 0, 1});
  expect_refused({LinkVerdict::kBusy, 1, 1});
  expect_refused({static_cast<LinkVerdict>(9), 0, 1});
  EXPECT_THAT(DecodeWelcome("xy"), StatusIs(absl::StatusCode::kInvalidArgument));
  absl::Status why;
  EXPECT_THAT(DecodeEnd("xy", why), StatusIs(absl::StatusCode::kInvalidArgument));
  // An end without an error would hide the loss.
  PHALANX_EXPECT_OK(DecodeEnd(EncodeBody(absl::OkStatus()), why));
  EXPECT_THAT(why, StatusIs(absl::StatusCode::kUnknown));
}

TEST(LinkFrame, ARequestForALinkSurvivesEncoding) {
  const LinkPayload request = {1, 2, 3, 4};
  EXPECT_THAT(DecodeLink(EncodePayload(request)), IsOkAndHolds(request));
  for (const LinkPayload& bad : {LinkPayload{0, 2, 3, 4}, {1, 0, 3, 4}, {1, 2, 3, 0}}) {
    EXPECT_THAT(DecodeLink(EncodePayload(bad)), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace phalanx::net
