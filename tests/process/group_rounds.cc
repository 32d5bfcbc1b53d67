// A member of a job whose memory is watched: makes rounds of calls of 8 bytes, with an object for
// each call in a scope that is freed every hundred calls.
//
//   group_rounds ADDRESS RANK WORLD
//
// Each line "CALLS" of its input is so many calls, a multiple of a hundred. In call n the member
// with rank n modulo WORLD puts an object of the scope n / 100, all make an AllReduce, and the next
// rank gets the object and checks it. With every hundredth call rank 0 ends the scope before this
// one. Prints "done" after each line. Ends with 0, or with 1 and what failed.
#include <cstdint>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/group.h"
#include "phalanx/job.h"

namespace {

constexpr uint64_t kCallsOfAScope = 100;
constexpr size_t kObjectBytes = 256;
constexpr absl::Duration kTimeout = absl::Seconds(60);

class Rounds {
 public:
  Rounds(phalanx::Client& client, const phalanx::Membership& member)
      : client_(client),
        rank_(static_cast<uint64_t>(member.rank())),
        world_(static_cast<uint64_t>(member.world())),
        group_(member, {.timeout = kTimeout}) {}

  absl::Status Make(uint64_t calls) {
    for (const uint64_t end = call_ + calls; call_ < end; ++call_) {
      if (absl::Status status = MakeOne(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status MakeOne() {
    // Not by Client::Id, which remembers up to 65,536 names.
    const phalanx::ObjectId id = phalanx::ObjectId::FromName("rounds", absl::StrCat(call_));
    const phalanx::Scope scope{"rounds", call_ / kCallsOfAScope};
    const std::string bytes(kObjectBytes, static_cast<char>(call_ % 251));
    if (rank_ == call_ % world_) {
      phalanx::PutOptions options;
      options.scope = scope;
      const auto put = client_.Put(id, bytes, options).Wait();
      if (!put.ok()) return put.status();
    }
    uint64_t sum = call_ + rank_;
    const absl::Status reduced = group_.AllReduce(absl::MakeSpan(&sum, 1)).Wait().status();
    if (!reduced.ok()) return reduced;
    if (sum != world_ * call_ + world_ * (world_ - 1) / 2) {
      return absl::InternalError(absl::StrCat("the sum of call ", call_, " is ", sum));
    }
    if (rank_ == (call_ + 1) % world_) {
      phalanx::GetOptions options;
      options.scope = scope;
      options.timeout = kTimeout;
      const auto got = client_.Get(id, options).Wait();
      if (!got.ok()) return got.status();
      if (got->view() != bytes) return absl::InternalError(absl::StrCat("bytes of call ", call_));
    }
    // Every member has got the objects of the scope before, as it has made this call.
    if (rank_ == 0 && scope.number > 0 && call_ % kCallsOfAScope == kCallsOfAScope - 1) {
      return client_.EndScope({scope.name, scope.number - 1}).Wait().status();
    }
    return absl::OkStatus();
  }

  phalanx::Client& client_;
  const uint64_t rank_;
  const uint64_t world_;
  const phalanx::Group group_;
  uint64_t call_ = 0;
};

int Fail(const absl::Status& status) {
  std::cout << status << std::endl;
  return 1;
}

int Run(const std::string& address, int rank, int world) {
  phalanx::ClientOptions options;
  options.address = address;
  const auto client = phalanx::Client::Connect(options);
  if (!client.ok()) return Fail(client.status());
  const auto member = (*client)->Join("rounds", absl::StrCat("worker", rank), {.world = world});
  if (!member.ok()) return Fail(member.status());
  Rounds rounds(**client, *member);
  uint64_t calls = 0;
  while (std::cin >> calls) {
    if (const absl::Status status = rounds.Make(calls); !status.ok()) return Fail(status);
    std::cout << "done" << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int rank = 0, world = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[2], &rank) || !absl::SimpleAtoi(argv[3], &world)) {
    return 2;
  }
  return Run(argv[1], rank, world);
}
