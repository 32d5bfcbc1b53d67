#include "src/net/tcp/resolver.h"

#include <future>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/no_threads.h"
#include "src/common/testing/status_matchers.h"
#include "src/net/loop/event_loop.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ResolverTest, FindsLocalhostAndAnswersOnTheExecutor) {
  EventLoop loop;
  PHALANX_EXPECT_OK(loop.Start("loop"));
  Resolver resolver;
  std::promise<Resolver::Addresses> found;
  resolver.LookUp({"localhost", 7400}, loop, [&](Resolver::Addresses addresses) {
    EXPECT_TRUE(loop.InLoop());
    found.set_value(std::move(addresses));
  });
  const Resolver::Addresses addresses = found.get_future().get();
  PHALANX_ASSERT_OK(addresses);
  for (const SocketAddress& address : *addresses) {
    EXPECT_THAT(address.ToString(), ::testing::AnyOf("127.0.0.1:7400", "[::1]:7400"));
  }
}

TEST(ResolverTest, TheErrorNamesAnUnknownHost) {
  EXPECT_THAT(LookUpAddress({"no-such-name.invalid", 7400}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no-such-name.invalid:7400")));
}

TEST(ResolverTest, ASlowNameDelaysNeitherTheLoopNorOtherNames) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  EventLoop loop;
  PHALANX_EXPECT_OK(loop.Start("loop"));
  Resolver resolver([released](const HostPort& host_port) -> Resolver::Addresses {
    if (host_port.host == "slow") released.wait();
    return absl::UnavailableError(host_port.host);
  });
  std::promise<void> fast, slow;
  resolver.LookUp({"slow", 1}, loop, [&](auto) { slow.set_value(); });
  resolver.LookUp({"fast", 1}, loop, [&](auto) { fast.set_value(); });
  fast.get_future().wait();
  release.set_value();
  slow.get_future().wait();
}

TEST(ResolverTest, WithoutAThreadANameIsUnavailableAndTheNextIsFound) {
  EventLoop loop;
  PHALANX_ASSERT_OK(loop.Start("loop"));
  Resolver resolver([](const HostPort&) { return std::vector<SocketAddress>(); });
  std::promise<Resolver::Addresses> in_vain, found;
  {
    const ::phalanx::testing::NoThreads no_threads;
    resolver.LookUp({"host", 1}, loop,
                    [&](auto addresses) { in_vain.set_value(std::move(addresses)); });
  }
  EXPECT_THAT(in_vain.get_future().get(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("host:1")));
  resolver.LookUp({"host", 1}, loop,
                  [&](auto addresses) { found.set_value(std::move(addresses)); });
  PHALANX_EXPECT_OK(found.get_future().get());
}

TEST(ResolverTest, RefusesWhenTooManyNamesWait) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  EventLoop loop;
  PHALANX_EXPECT_OK(loop.Start("loop"));
  Resolver resolver([released](const HostPort&) -> Resolver::Addresses {
    released.wait();
    return absl::UnavailableError("not found");
  });
  std::promise<absl::Status> refused;
  int answers = 0;
  const int kRequests = static_cast<int>(Resolver::kMaxWaiting) + Resolver::kMaxThreads + 1;
  std::promise<void> all;
  for (int i = 0; i < kRequests; ++i) {
    resolver.LookUp({"name", 1}, loop, [&](const Resolver::Addresses& addresses) {
      if (answers == 0) {
        refused.set_value(addresses.status());
        release.set_value();
      }
      if (++answers == kRequests) all.set_value();
    });
  }
  EXPECT_THAT(refused.get_future().get(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("too many names")));
  all.get_future().wait();
}

TEST(ResolverTest, DoesNotWaitForALookupWhenItIsDestroyed) {
  auto release = std::make_shared<std::promise<void>>();
  auto finished = std::make_shared<std::promise<void>>();
  std::future<void> has_finished = finished->get_future();
  {
    EventLoop loop;
    PHALANX_EXPECT_OK(loop.Start("loop"));
    auto released = std::make_shared<std::future<void>>(release->get_future());
    Resolver resolver([=](const HostPort&) -> Resolver::Addresses {
      released->wait();
      finished->set_value();
      return absl::UnavailableError("too late");
    });
    resolver.LookUp({"name", 1}, loop, [](auto) { ADD_FAILURE() << "the resolver is gone"; });
  }
  release->set_value();
  // Only if the thread had taken the request before the resolver was destroyed.
  has_finished.wait_for(std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace phalanx::net
