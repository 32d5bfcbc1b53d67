// A member of the job of a run of group chaos: makes calls of AllReduce until a result says that
// all stop, and checks every element.
//
//   group_load BYTES PAUSE_MS wait|exclude|fail SECONDS
//
// Between two calls it waits for PAUSE_MS, as a program that computes. SECONDS are the deadline of
// each call. After SIGTERM its next input asks all members to stop. Lines:
//   "P pid rank life"
//   "R number set total own micros"   a call with a result: who is in it (bit r for rank r), the
//                                     sum of the members' salts, this member's salt
//   "E number micros text"            a call that failed
//   "O number micros text"            the same, because this life is over
//   "V text"                          a violation
//   "S"                               it stops, as the last result says
// Ends with 0; with 3 if this life is over (it is dead for the others, or its node has ended); with
// 9 if a call is stuck.
#include <unistd.h>

#include <bitset>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/group.h"
#include "phalanx/job.h"
#include "src/common/time/clock.h"

namespace {

constexpr int kOver = 3;
constexpr int kStuck = 9;
// After the deadline of a call.
constexpr unsigned kStuckSeconds = 20;
constexpr absl::Duration kConnectPause = absl::Milliseconds(50);

volatile std::sig_atomic_t stopping = 0;

void Print(absl::string_view text) {
  const std::string line = absl::StrCat(text, "\n");
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) _exit(1);
}

void OnStuck(int) {
  constexpr char kText[] = "V a call does not end\n";
  if (write(STDOUT_FILENO, kText, sizeof(kText) - 1) < 0) _exit(1);
  _exit(kStuck);
}

// An element is, from its lowest bit on: 16 bits of set times (1 + index % 7), 32 bits of the sum
// of (salt + index % 7), 16 bits of members that want to stop. So the sum of twelve inputs shows
// which are in it, and an element that came to another place, or from another call, does not fit.
struct Sum {
  uint64_t set = 0;
  uint64_t total = 0;
  uint64_t stops = 0;

  uint64_t members() const { return std::bitset<16>(set).count(); }
  uint64_t ElementAt(size_t index) const {
    const uint64_t place = index % 7;
    return set * (1 + place) + ((total + members() * place) << 16) + (stops << 48);
  }
  static Sum Of(uint64_t first_element) {
    return {first_element & 0xffff, (first_element >> 16) & 0xffffffff, first_element >> 48};
  }
};

// Of each call of each life another number.
uint64_t SaltOf(uint64_t rank, uint64_t life, uint64_t call) {
  uint64_t x = (rank << 56) ^ (life << 32) ^ call;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return (x ^ (x >> 31)) & 0xfffff;
}

class Load {
 public:
  Load(phalanx::Membership member, const phalanx::GroupOptions& options, uint64_t bytes,
       absl::Duration pause)
      : member_(std::move(member)),
        group_(member_, options),
        pause_(pause),
        patience_(kStuckSeconds + static_cast<unsigned>(absl::ToInt64Seconds(options.timeout))),
        vector_(bytes / sizeof(uint64_t)) {}

  int Run() {
    const auto rank = static_cast<uint64_t>(member_.rank());
    Print(absl::StrCat("P ", getpid(), " ", rank, " ", member_.life()));
    for (uint64_t call = 1;; ++call) {
      const Sum own{.set = uint64_t{1} << rank,
                    .total = SaltOf(rank, member_.life(), call),
                    .stops = stopping != 0 ? uint64_t{1} : 0};
      if (!Call(own)) return kOver;
      if (stop_) break;
      // Returns early if a member has changed.
      const absl::StatusOr<uint64_t> change = member_.WaitForChange(change_, pause_);
      if (change.ok()) change_ = *change;
    }
    Print("S");
    return member_.Leave().ok() ? 0 : kOver;
  }

 private:
  // Makes one call. Returns false if this life is over.
  bool Call(const Sum& own) {
    for (size_t i = 0; i < vector_.size(); ++i) vector_[i] = own.ElementAt(i);
    const phalanx::Instant begun = phalanx::MonotonicNow();
    alarm(patience_);
    const absl::Status status = group_.AllReduce(absl::MakeSpan(vector_)).Wait().status();
    alarm(0);
    const int64_t micros = absl::ToInt64Microseconds(phalanx::MonotonicNow() - begun);
    if (!status.ok()) {
      const bool over = !member_.status().ok();
      Print(absl::StrCat(over ? "O " : "E ", group_.calls(), " ", micros, " ", status.ToString()));
      return !over;
    }
    const Sum sum = Sum::Of(vector_[0]);
    Check(own, sum);
    Print(absl::StrCat("R ", group_.calls(), " ", sum.set, " ", sum.total, " ", own.total, " ",
                       micros));
    stop_ = sum.stops != 0;
    return true;
  }

  void Check(const Sum& own, const Sum& sum) const {
    if ((sum.set & own.set) == 0) Print(absl::StrCat("V call ", group_.calls(), " lacks its own"));
    if (static_cast<int>(sum.members()) != group_.members_of_last_call()) {
      Print(absl::StrCat("V call ", group_.calls(), " has the set ", sum.set, ", but ",
                         group_.members_of_last_call(), " members"));
    }
    for (size_t i = 0; i < vector_.size(); ++i) {
      if (vector_[i] == sum.ElementAt(i)) continue;
      return Print(absl::StrCat("V call ", group_.calls(), ": element ", i, " is ", vector_[i],
                                ", not ", sum.ElementAt(i)));
    }
  }

  const phalanx::Membership member_;
  const phalanx::Group group_;
  const absl::Duration pause_;
  const unsigned patience_;
  std::vector<uint64_t> vector_;
  uint64_t change_ = 0;
  bool stop_ = false;
};

int Run(uint64_t bytes, absl::Duration pause, const phalanx::GroupOptions& options) {
  absl::StatusOr<std::shared_ptr<phalanx::Client>> client = phalanx::Client::Connect();
  // The launch would start it again at once, and use up a core while the node is away.
  const absl::Notification never;
  while (!client.ok() && !never.WaitForNotificationWithTimeout(kConnectPause)) {
    client = phalanx::Client::Connect();
  }
  absl::StatusOr<phalanx::Membership> member = (*client)->Join("", "", {});
  if (!member.ok()) {
    std::cerr << "cannot join: " << member.status() << std::endl;
    return kOver;
  }
  return Load(*std::move(member), options, bytes, pause).Run();
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t bytes = 0;
  double pause_ms = 0;
  double seconds = 0;
  if (argc != 5 || !absl::SimpleAtoi(argv[1], &bytes) || bytes < sizeof(uint64_t) ||
      !absl::SimpleAtod(argv[2], &pause_ms) || !absl::SimpleAtod(argv[4], &seconds)) {
    return 2;
  }
  std::signal(SIGALRM, OnStuck);
  std::signal(SIGTERM, [](int) { stopping = 1; });
  const std::string on_loss = argv[3];
  phalanx::GroupOptions options;
  options.timeout = absl::Seconds(seconds);
  if (on_loss == "wait") options.on_loss = phalanx::LossPolicy::kWait;
  if (on_loss == "exclude") options.on_loss = phalanx::LossPolicy::kExclude;
  return Run(bytes, absl::Milliseconds(pause_ms), options);
}
