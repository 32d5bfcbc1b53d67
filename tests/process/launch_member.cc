// A task of a job that prints at its launch, for tests of `phalanx launch`:
//
//   launch_member STEP ...
//
//   print:TEXT   prints TEXT as it is
//   count:N      prints "TASK NUMBER" N times, one by one
//   lines:N      prints N such lines as one text
//   kill         in its first life: kills itself with SIGKILL
//
// Other words are ignored. Ends with 0; 1 and "ERROR ..." if a call fails.
#include <signal.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "phalanx/client.h"
#include "phalanx/job.h"

namespace {

class Task {
 public:
  explicit Task(phalanx::Membership member) : member_(std::move(member)) {}

  absl::Status Do(absl::string_view step) {
    if (absl::ConsumePrefix(&step, "print:")) return member_.Print(step);
    if (absl::ConsumePrefix(&step, "count:")) return Count(Number(step), /*at_once=*/false);
    if (absl::ConsumePrefix(&step, "lines:")) return Count(Number(step), /*at_once=*/true);
    if (step == "kill" && member_.life() == 0) raise(SIGKILL);
    return absl::OkStatus();
  }
  absl::Status Leave() { return member_.Leave(); }

 private:
  static uint64_t Number(absl::string_view text) {
    uint64_t number = 0;
    return absl::SimpleAtoi(text, &number) ? number : 0;
  }
  absl::Status Count(uint64_t lines, bool at_once) {
    std::string text;
    for (uint64_t i = 0; i < lines; ++i) {
      absl::StrAppend(&text, member_.task(), " ", i, "\n");
      if (at_once && i + 1 < lines) continue;
      if (const absl::Status printed = member_.Print(text); !printed.ok()) return printed;
      text.clear();
    }
    return absl::OkStatus();
  }

  const phalanx::Membership member_;
};

absl::Status Run(int argc, char** argv) {
  absl::StatusOr<std::shared_ptr<phalanx::Client>> client = phalanx::Client::Connect();
  if (!client.ok()) return client.status();
  absl::StatusOr<phalanx::Membership> member = (*client)->Join("", "", {});
  if (!member.ok()) return member.status();
  Task task(*std::move(member));
  for (int i = 1; i < argc; ++i) {
    if (const absl::Status done = task.Do(argv[i]); !done.ok()) return done;
  }
  return task.Leave();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc, argv);
  if (status.ok()) return 0;
  std::cout << "ERROR " << status << std::endl;
  return 1;
}
