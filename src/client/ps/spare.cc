#include "src/client/ps/spare.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"
#include "src/common/time/instant.h"

namespace phalanx::ps::internal {
namespace {

// The launch ends spares that are not needed, unless other launches have the servers.
constexpr absl::Duration kIdleAfterEnd = absl::Seconds(10);

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Since when each server is dead, as this process has seen it.
class Dead {
 public:
  void Note(const std::vector<Member>& servers) {
    const Instant now = MonotonicNow();
    for (const Member& server : servers) {
      if (server.state != MemberState::kDied) {
        since_.erase(server.rank);
      } else {
        since_.try_emplace(server.rank, now);
      }
    }
  }
  std::vector<int> For(absl::Duration time) const {
    std::vector<int> ranks;
    for (const auto& [rank, since] : since_) {
      if (MonotonicNow() - since >= time) ranks.push_back(rank);
    }
    return ranks;
  }
  // When For(time) can have more.
  Instant Next(absl::Duration time) const {
    Instant next = Instant::Infinite();
    for (const auto& [rank, since] : since_) {
      if (since + time > MonotonicNow()) next = std::min(next, since + time);
    }
    return next;
  }

 private:
  std::map<int, Instant> since_;
};

}  // namespace

absl::StatusOr<std::optional<SpareOptions>> SpareOptionsFromLaunch() {
  const std::string world = Variable("PHALANX_SPARES");
  if (world.empty()) return std::nullopt;
  SpareOptions spare;
  if (!absl::SimpleAtoi(world, &spare.world) || spare.world <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Join: PHALANX_SPARES is \"", world, "\", not a number of spares"));
  }
  const std::string after = Variable("PHALANX_SPARE_AFTER");
  if (!after.empty() && !absl::ParseDuration(after, &spare.after)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Join: PHALANX_SPARE_AFTER is \"", after, "\", not a duration"));
  }
  return spare;
}

std::optional<int> PartOf(int rank, const std::vector<Member>& spares,
                          const std::vector<int>& dead) {
  const auto before =
      static_cast<size_t>(std::count_if(spares.begin(), spares.end(), [rank](const Member& each) {
        return each.live() && each.rank < rank;
      }));
  if (before >= dead.size()) return std::nullopt;
  return dead[before];
}

absl::StatusOr<Membership> JoinInsteadOf(Client& client, const SpareOptions& spare) {
  JoinOptions waits;
  waits.world = spare.world;
  waits.role = absl::StrCat(spare.server_role, "-spare");
  waits.timeout = std::min(waits.timeout, spare.join_timeout);
  PHALANX_ASSIGN_OR_RETURN(const Membership member, client.Join(spare.job, "", waits));
  Dead dead;
  Instant left_since = Instant::Infinite();
  uint64_t change = 0;
  while (true) {
    const std::vector<Member> servers = member.Members(spare.server_role);
    dead.Note(servers);
    const std::optional<int> part = PartOf(member.rank(), member.Members(), dead.For(spare.after));
    if (part.has_value()) {
      JoinOptions join;
      join.world = static_cast<int>(servers.size());
      join.role = spare.server_role;
      join.timeout = waits.timeout;
      absl::StatusOr<Membership> server =
          client.Join(member.job(), servers[static_cast<size_t>(*part)].task, join);
      if (server.ok()) member.Leave().IgnoreError();
      return server;
    }
    const bool all_left =
        !servers.empty() && std::all_of(servers.begin(), servers.end(), [](const Member& server) {
          return server.state == MemberState::kLeft;
        });
    left_since = all_left ? std::min(left_since, MonotonicNow()) : Instant::Infinite();
    const Instant end = all_left ? left_since + kIdleAfterEnd : Instant::Infinite();
    if (MonotonicNow() >= end) {
      return absl::CancelledError(absl::StrCat("Join: all servers of job ", member.job(),
                                               " have left, and none has needed this spare"));
    }
    const Instant until = std::min(end, dead.Next(spare.after));
    const absl::StatusOr<uint64_t> next =
        member.WaitForChange(change, until == Instant::Infinite()
                                         ? absl::InfiniteDuration()
                                         : std::max(absl::ZeroDuration(), until - MonotonicNow()));
    if (!next.ok() && !absl::IsDeadlineExceeded(next.status())) return next.status();
    if (next.ok()) change = *next;
  }
}

}  // namespace phalanx::ps::internal
