// A task of a job, for tests of groups under faults: calls AllReduce until the call with the number
// CALLS has ended, and, if members were excluded, until a call has all of them again.
//
//   group_member CALLS BYTES wait|exclude|fail SECONDS RETAIN [GATE]
//
// Every element of a member's vector is 2 to the power of its rank, so each element of a result is
// the set of the members that took part in it. SECONDS are the deadline of each call. Prints
// "NUMBER SET" for each call. If the results of RETAIN calls are kept, a next life asks for those
// of all calls before its first one, and prints "kept NUMBER SET" for each that is still there.
// GATE is a FIFO that rank 0 opens before the second half of the calls, and each rank of which a
// call has failed before it ends: it waits until another process has opened it to write. Ends with
// 0; 1 and "WRONG ..." if elements differ or the number
// of members is another one; 2 and "ERROR ..." if a call fails.
#include <fcntl.h>
#include <unistd.h>

#include <bitset>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/group.h"
#include "phalanx/job.h"

namespace {

constexpr int kWrong = 1;
constexpr int kError = 2;

int Fail(const absl::Status& status) {
  std::cout << "ERROR " << status << std::endl;
  return kError;
}

// Returns true if all elements are the set of so many members.
bool Fits(const std::vector<uint64_t>& result, size_t members) {
  for (const uint64_t element : result) {
    if (element != result[0]) return false;
  }
  return std::bitset<64>(result[0]).count() == members;
}

// Prints the results of the calls before the first one of this life. Returns 0, or how the program
// ends.
int PrintKept(const phalanx::Group& group, std::vector<uint64_t>& sum) {
  for (uint64_t call = 1;; ++call) {
    const absl::Status status = group.Result(call, absl::MakeSpan(sum)).Wait().status();
    if (absl::IsOutOfRange(status)) return 0;
    if (absl::IsNotFound(status)) continue;
    if (!status.ok()) return Fail(status);
    if (!Fits(sum, std::bitset<64>(sum[0]).count())) {
      std::cout << "WRONG kept result of call " << call << std::endl;
      return kWrong;
    }
    std::cout << "kept " << call << " " << sum[0] << std::endl;
  }
}

// Returns false if the gate cannot be opened.
bool WaitAt(const std::string& gate) {
  const int fd = open(gate.c_str(), O_RDONLY | O_CLOEXEC);
  return fd >= 0 && close(fd) == 0;
}

int Run(uint64_t calls, uint64_t bytes, const phalanx::GroupOptions& options,
        const std::string& gate) {
  absl::StatusOr<std::shared_ptr<phalanx::Client>> client = phalanx::Client::Connect();
  if (!client.ok()) return Fail(client.status());
  absl::StatusOr<phalanx::Membership> member = (*client)->Join("", "", {});
  if (!member.ok()) return Fail(member.status());
  const phalanx::Group group(*member, options);
  std::vector<uint64_t> sum(bytes / sizeof(uint64_t));
  if (options.retain > 0 && member->life() > 0) {
    if (const int ends = PrintKept(group, sum); ends != 0) return ends;
  }
  while (group.calls() < calls || group.members_of_last_call() < member->world()) {
    const bool at_gate = !gate.empty() && member->rank() == 0 && group.calls() == calls / 2;
    if (at_gate && !WaitAt(gate)) return Fail(absl::NotFoundError(gate));
    sum.assign(sum.size(), uint64_t{1} << member->rank());
    const absl::Status status = group.AllReduce(absl::MakeSpan(sum)).Wait().status();
    if (!status.ok()) {
      const int ends = Fail(status);
      // Until then the others cannot see that it has ended instead of why the call has failed.
      if (!gate.empty() && !WaitAt(gate)) return Fail(absl::NotFoundError(gate));
      return ends;
    }
    if (!Fits(sum, static_cast<size_t>(group.members_of_last_call()))) {
      std::cout << "WRONG call " << group.calls() << " of " << group.members_of_last_call()
                << " members" << std::endl;
      return kWrong;
    }
    std::cout << group.calls() << " " << sum[0] << std::endl;
  }
  const absl::Status left = member->Leave();
  return left.ok() ? 0 : Fail(left);
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  double seconds = 0;
  int retain = 0;
  if (argc < 6 || argc > 7 || !absl::SimpleAtoi(argv[1], &calls) ||
      !absl::SimpleAtoi(argv[2], &bytes) || !absl::SimpleAtod(argv[4], &seconds) ||
      !absl::SimpleAtoi(argv[5], &retain)) {
    std::cerr << "usage: group_member CALLS BYTES wait|exclude|fail SECONDS RETAIN [GATE]\n";
    return kError;
  }
  const std::string on_loss = argv[3];
  phalanx::GroupOptions options;
  options.timeout = absl::Seconds(seconds);
  options.retain = retain;
  if (on_loss == "wait") options.on_loss = phalanx::LossPolicy::kWait;
  if (on_loss == "exclude") options.on_loss = phalanx::LossPolicy::kExclude;
  return Run(calls, bytes, options, argc == 7 ? argv[6] : "");
}
