#include "src/client/ps/spare.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
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
// A part that is for another spare.
constexpr absl::Duration kLeftToAnother = absl::Seconds(1);
// After another one has claimed a part, which can die before it joins.
constexpr absl::Duration kClaimAgain = absl::Milliseconds(500);
constexpr absl::Duration kClaimTimeout = absl::Seconds(10);

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Since when each server is dead or has not come, as this process has seen it.
class Dead {
 public:
  explicit Dead(const SpareOptions& options)
      : after_(options.after), absent_after_(std::max(options.after, options.absent_after)) {}

  void Note(const std::vector<Member>& servers) {
    for (const Member& server : servers) {
      const auto known = since_.find(server.rank);
      if (known != since_.end() && known->second.state == server.state) continue;
      since_[server.rank] = {server.state, MonotonicNow()};
    }
  }
  // Since when the part of this server could be taken.
  Instant Due(const Member& server) const {
    const Known& known = since_.at(server.rank);
    return known.since + (known.state == MemberState::kDied ? after_ : absent_after_);
  }

 private:
  struct Known {
    MemberState state = MemberState::kAbsent;
    Instant since;
  };
  const absl::Duration after_, absent_after_;
  std::map<int, Known> since_;
};

// One spare.
class Spare {
 public:
  Spare(Client& client, const SpareOptions& options, Membership member, absl::Duration join_timeout)
      : client_(client),
        options_(options),
        member_(std::move(member)),
        join_timeout_(join_timeout),
        dead_(options),
        until_joined_(MonotonicNow() + options.join_timeout) {}

  absl::StatusOr<Membership> Await();

 private:
  // False: another spare has it, or had it and has died.
  absl::StatusOr<bool> Claim(const Member& server) const;
  // The part that this spare has claimed; nothing yet.
  absl::StatusOr<std::optional<Member>> TakePart(const std::vector<Member>& spares,
                                                 const std::vector<Member>& servers);
  // OK, or why it ends. Also notes when that can change.
  absl::Status Check(const std::vector<Member>& servers);

  Client& client_;
  const SpareOptions& options_;
  const Membership member_;
  const absl::Duration join_timeout_;
  Dead dead_;
  const Instant until_joined_;
  Instant left_since_ = Instant::Infinite();
  Instant again_ = Instant::Infinite();  // there can be more to do then
};

// The directory adopts one object of a name. One that comes later drops its own.
absl::StatusOr<bool> Spare::Claim(const Member& server) const {
  const ObjectId claim = ObjectId::FromName(
      "phalanx.ps", absl::StrCat(member_.job(), "/", options_.server_role, "/", server.rank, "/",
                                 server.state == MemberState::kDied ? absl::StrCat(server.life)
                                                                    : std::string("absent"),
                                 "/spare"));
  PHALANX_ASSIGN_OR_RETURN(const bool taken, client_.Contains(claim, kClaimTimeout).Wait());
  if (taken) return false;
  PutOptions options;
  options.owned = true;
  options.wait_for_adoption = true;
  options.timeout = kClaimTimeout;
  const absl::StatusOr<PutResult> put =
      client_.Put(claim, ObjectId::Random().binary(), options).Wait();
  PHALANX_RETURN_IF_ERROR(put.status());
  if (!put->already_existed) return true;
  // It would stay with this spare when the other one ends.
  client_.Release({claim});
  return false;
}

// A claim that is refused is no error: the other spare joins, or it dies, and its claim with it.
absl::StatusOr<std::optional<Member>> Spare::TakePart(const std::vector<Member>& spares,
                                                      const std::vector<Member>& servers) {
  const Instant now = MonotonicNow();
  std::vector<Member> dead = DeadServers(servers);
  std::erase_if(dead, [&](const Member& server) {
    const bool later = dead_.Due(server) > now;
    if (later) again_ = std::min(again_, dead_.Due(server));
    return later;
  });
  const std::optional<size_t> own = PartOf(member_.rank(), spares, dead.size());
  for (size_t i = 0; i < dead.size(); ++i) {
    const Instant for_others = dead_.Due(dead[i]) + kLeftToAnother;
    if (i != own && for_others > now) {
      again_ = std::min(again_, for_others);
      continue;
    }
    const absl::StatusOr<bool> claimed = Claim(dead[i]);
    if (claimed.ok() && *claimed) return std::optional(dead[i]);
    again_ = std::min(again_, MonotonicNow() + kClaimAgain);
    if (!claimed.ok() && !absl::IsDeadlineExceeded(claimed.status())) return claimed.status();
  }
  return std::nullopt;
}

absl::Status Spare::Check(const std::vector<Member>& servers) {
  if (servers.empty()) {
    again_ = std::min(again_, until_joined_);
    if (MonotonicNow() < until_joined_) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat("Join: no server of job ", member_.job(),
                                                    " has joined, for which this spare waits"));
  }
  const bool all_left = std::all_of(servers.begin(), servers.end(), [](const Member& server) {
    return server.state == MemberState::kLeft;
  });
  left_since_ = all_left ? std::min(left_since_, MonotonicNow()) : Instant::Infinite();
  if (!all_left) return absl::OkStatus();
  const Instant end = left_since_ + kIdleAfterEnd;
  again_ = std::min(again_, end);
  if (MonotonicNow() < end) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("Join: all servers of job ", member_.job(),
                                           " have left, and none has needed this spare"));
}

absl::StatusOr<Membership> Spare::Await() {
  uint64_t change = 0;
  while (true) {
    again_ = Instant::Infinite();
    // In this order: a spare that is seen no more is seen as a server.
    const std::vector<Member> spares = member_.Members();
    const std::vector<Member> servers = member_.Members(options_.server_role);
    dead_.Note(servers);
    PHALANX_ASSIGN_OR_RETURN(const std::optional<Member> part, TakePart(spares, servers));
    if (part.has_value()) {
      JoinOptions join;
      join.world = static_cast<int>(servers.size());
      join.role = options_.server_role;
      join.timeout = join_timeout_;
      // Ranks are the numbers in the names of tasks that the launch starts.
      const std::string task =
          part->task.empty() ? absl::StrCat(options_.server_role, part->rank) : part->task;
      absl::StatusOr<Membership> server = client_.Join(member_.job(), task, join);
      if (server.ok()) member_.Leave().IgnoreError();
      return server;
    }
    PHALANX_RETURN_IF_ERROR(Check(servers));
    const absl::StatusOr<uint64_t> next = member_.WaitForChange(
        change, again_ == Instant::Infinite()
                    ? absl::InfiniteDuration()
                    : std::max(absl::ZeroDuration(), again_ - MonotonicNow()));
    if (!next.ok() && !absl::IsDeadlineExceeded(next.status())) return next.status();
    if (next.ok()) change = *next;
  }
}

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

std::vector<Member> DeadServers(std::vector<Member> servers) {
  std::erase_if(servers, [](const Member& server) {
    return server.state != MemberState::kDied && server.state != MemberState::kAbsent;
  });
  const auto place = [](const Member& server) {
    return std::tuple(server.state != MemberState::kDied, server.change, server.rank);
  };
  std::sort(servers.begin(), servers.end(),
            [&](const Member& a, const Member& b) { return place(a) < place(b); });
  return servers;
}

std::optional<size_t> PartOf(int rank, const std::vector<Member>& spares, size_t dead) {
  const auto before =
      static_cast<size_t>(std::count_if(spares.begin(), spares.end(), [rank](const Member& each) {
        return each.live() && each.rank < rank;
      }));
  if (before >= dead) return std::nullopt;
  return before;
}

absl::StatusOr<Membership> JoinInsteadOf(Client& client, const SpareOptions& spare) {
  JoinOptions waits;
  waits.world = spare.world;
  waits.role = absl::StrCat(spare.server_role, "-spare");
  waits.timeout = std::min(waits.timeout, spare.join_timeout);
  PHALANX_ASSIGN_OR_RETURN(Membership member, client.Join(spare.job, spare.task, waits));
  return Spare(client, spare, std::move(member), waits.timeout).Await();
}

}  // namespace phalanx::ps::internal
