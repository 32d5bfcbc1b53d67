#include "src/client/ps/spares/spare.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
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

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A line of the launch's file, which may not be there.
void Report(const std::string& file, const std::string& line) {
  if (!file.empty()) std::ofstream(file, std::ios::app) << line << std::endl;
}

// Since when each server is dead or has not come, as this process has seen it.
class Dead {
 public:
  explicit Dead(const SpareOptions& options)
      : after_(options.after),
        absent_after_(
            std::max(options.after, options.absent_after.value_or(options.join_timeout / 2))) {}

  void Note(const std::vector<Member>& servers) {
    for (const Member& server : servers) {
      const auto known = since_.find(server.rank);
      const bool same = known != since_.end() && known->second.state == server.state &&
                        known->second.life == server.life;
      if (same) continue;
      // One that had died before the first look can be of an earlier run.
      const bool died = server.state == MemberState::kDied && !first_;
      since_[server.rank] = {server.state, server.life,
                             MonotonicNow() + (died ? after_ : absent_after_)};
    }
    first_ = false;
  }
  // From when on the part of this server could be taken.
  Instant Due(const Member& server) const { return since_.at(server.rank).due; }

 private:
  struct Known {
    MemberState state = MemberState::kAbsent;
    uint64_t life = 0;
    Instant due;
  };
  const absl::Duration after_, absent_after_;
  bool first_ = true;
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
  // The servers, absent ones if none has joined.
  std::vector<Member> Servers() const;
  // False: another spare has it, or had it and has died.
  absl::StatusOr<bool> Claim(const Member& server) const;
  // The part that this spare has claimed; nothing yet.
  std::optional<Member> TakePart(const std::vector<Member>& spares,
                                 const std::vector<Member>& servers);
  // OK, or why it ends. Also notes when that can change.
  absl::Status Check(const std::vector<Member>& servers);

  Client& client_;
  const SpareOptions& options_;
  const Membership member_;
  const absl::Duration join_timeout_;
  Dead dead_;
  const Instant until_joined_;
  bool lived_ = false;  // a server has, in the time of this spare
  Instant left_since_ = Instant::Infinite();
  Instant again_ = Instant::Infinite();  // there can be more to do then
};

std::vector<Member> Spare::Servers() const {
  std::vector<Member> servers = member_.Members(options_.server_role);
  if (!servers.empty()) return servers;
  servers.resize(static_cast<size_t>(options_.server_world));
  for (size_t rank = 0; rank < servers.size(); ++rank) servers[rank].rank = static_cast<int>(rank);
  return servers;
}

// The directory adopts one object of a name. One that comes later drops its own.
absl::StatusOr<bool> Spare::Claim(const Member& server) const {
  const ObjectId claim = ObjectId::FromName(
      "phalanx.ps", absl::StrCat(member_.job(), "/", options_.server_role, "/", server.rank, "/",
                                 server.state == MemberState::kDied ? absl::StrCat(server.life)
                                                                    : std::string("absent"),
                                 "/spare"));
  PHALANX_ASSIGN_OR_RETURN(const bool taken,
                           client_.Contains(claim, options_.claim_timeout).Wait());
  if (taken) return false;
  PutOptions options;
  options.owned = true;
  options.wait_for_adoption = true;
  options.timeout = options_.claim_timeout;
  const absl::StatusOr<PutResult> put =
      client_.Put(claim, ObjectId::Random().binary(), options).Wait();
  if (put.ok() && !put->already_existed) return true;
  // It would stay with this spare when the other one ends. One that has failed can be there yet, or
  // come, and would keep all from the part.
  client_.Release({claim});
  PHALANX_RETURN_IF_ERROR(put.status());
  return false;
}

// A claim that is refused is no error: the other spare joins, or it dies, and its claim with it.
// Nor is one that fails, as when the node has no memory: the end of the connection is seen by
// Await.
std::optional<Member> Spare::TakePart(const std::vector<Member>& spares,
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
    if (claimed.ok() && *claimed) return dead[i];
    again_ = std::min(again_, MonotonicNow() + kClaimAgain);
  }
  return std::nullopt;
}

// Servers that have left before this spare came are those of a run before, or the spare is late.
absl::Status Spare::Check(const std::vector<Member>& servers) {
  const auto all = [&servers](MemberState state) {
    return std::all_of(servers.begin(), servers.end(),
                       [state](const Member& server) { return server.state == state; });
  };
  lived_ = lived_ || std::any_of(servers.begin(), servers.end(),
                                 [](const Member& server) { return server.live(); });
  const bool left = !servers.empty() && all(MemberState::kLeft);
  left_since_ = left ? std::min(left_since_, MonotonicNow()) : Instant::Infinite();
  if (!left && !all(MemberState::kAbsent)) return absl::OkStatus();
  const Instant end = lived_ ? left_since_ + kIdleAfterEnd : until_joined_;
  again_ = std::min(again_, end);
  if (MonotonicNow() < end) return absl::OkStatus();
  if (!left) {
    return absl::DeadlineExceededError(absl::StrCat("Join: no server of job ", member_.job(),
                                                    " has joined, for which this spare waits"));
  }
  return absl::CancelledError(absl::StrCat("Join: all servers of job ", member_.job(),
                                           " have left, and none has needed this spare"));
}

absl::StatusOr<Membership> Spare::Await() {
  uint64_t change = 0;
  dead_.Note(Servers());
  Report(options_.parts, "waits");
  while (true) {
    again_ = Instant::Infinite();
    // In this order: a spare that is seen no more is seen as a server.
    const std::vector<Member> spares = member_.Members();
    const std::vector<Member> servers = Servers();
    dead_.Note(servers);
    const std::optional<Member> part = TakePart(spares, servers);
    if (part.has_value()) {
      JoinOptions join;
      join.world = static_cast<int>(servers.size());
      join.role = options_.server_role;
      join.timeout = join_timeout_;
      // Ranks are the numbers in the names of tasks that the launch starts.
      const std::string& named =
          options_.server_task.empty() ? options_.server_role : options_.server_task;
      const std::string task = part->task.empty() ? absl::StrCat(named, part->rank) : part->task;
      absl::StatusOr<Membership> server = client_.Join(member_.job(), task, join);
      if (!server.ok()) return server;
      Report(options_.parts, absl::StrCat(server->rank()));
      member_.Leave().IgnoreError();
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
  const std::string absent = Variable("PHALANX_SPARE_ABSENT_AFTER");
  if (!absent.empty() && !absl::ParseDuration(absent, &spare.absent_after.emplace())) {
    return absl::InvalidArgumentError(
        absl::StrCat("Join: PHALANX_SPARE_ABSENT_AFTER is \"", absent, "\", not a duration"));
  }
  // The launch has set both for the servers, too.
  if (!absl::SimpleAtoi(Variable("PHALANX_WORLD"), &spare.server_world)) spare.server_world = 0;
  spare.server_task = Variable("PHALANX_ROLE");
  spare.parts = Variable("PHALANX_SPARE_PARTS");
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
