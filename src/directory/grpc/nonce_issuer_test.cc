#include "src/directory/grpc/nonce_issuer.h"

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

constexpr Instant kStart = Instant::FromNanos(5'000'000'000);

TEST(NonceIssuerTest, ANonceIsGoodOnce) {
  NonceIssuer issuer("key");
  const std::string nonce = issuer.Issue(kStart);
  EXPECT_EQ(nonce.size(), 32);
  EXPECT_NE(issuer.Issue(kStart), nonce);
  EXPECT_THAT(issuer.Redeem(nonce, kStart), IsOk());
  EXPECT_THAT(issuer.Redeem(nonce, kStart),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("used before")));
}

TEST(NonceIssuerTest, ANonceExpires) {
  NonceIssuer issuer("key");
  const std::string nonce = issuer.Issue(kStart);
  EXPECT_THAT(issuer.Redeem(nonce, kStart + kNonceLife + absl::Nanoseconds(1)),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("expired")));
  EXPECT_THAT(issuer.Redeem(nonce, kStart + kNonceLife), IsOk());
}

TEST(NonceIssuerTest, ANonceOfAnotherPeerIsRefused) {
  NonceIssuer issuer("key"), other("another key");
  EXPECT_THAT(issuer.Redeem(other.Issue(kStart), kStart),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(issuer.Redeem("short", kStart), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(issuer.Redeem("", kStart), StatusIs(absl::StatusCode::kPermissionDenied));
  std::string changed = issuer.Issue(kStart);
  changed[3] ^= 1;
  EXPECT_THAT(issuer.Redeem(changed, kStart), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST(NonceIssuerTest, RemembersABoundedNumberAndForgetsTheExpired) {
  NonceIssuer issuer("key");
  for (size_t i = 0; i < kMaxRedeemedNonces; ++i) {
    ASSERT_THAT(issuer.Redeem(issuer.Issue(kStart), kStart), IsOk());
  }
  EXPECT_THAT(issuer.Redeem(issuer.Issue(kStart), kStart),
              StatusIs(absl::StatusCode::kResourceExhausted));
  const Instant later = kStart + kNonceLife + absl::Nanoseconds(1);
  EXPECT_THAT(issuer.Redeem(issuer.Issue(later), later), IsOk());
}

}  // namespace
}  // namespace phalanx::directory
