// A task of a job, for tests of `phalanx launch`, on the C interface:
//
//   launch_member STEP ...
//
//   print:TEXT            prints TEXT as it is
//   count:N               prints "TASK NUMBER" N times, one by one
//   lines:N               prints N such lines as one text
//   kill                  in its first life: kills itself with SIGKILL
//   mock=RANK,_,_,LIFE    as this rank in this life: dies as declared
//
// Other words are ignored. Ends with 0; 1 and "ERROR ..." if a call fails.
#include <signal.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "phalanx/c.h"

namespace {

uint64_t Number(absl::string_view text) {
  uint64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

class Task {
 public:
  explicit Task(phx_member* member) : member_(member) {}

  bool Do(const std::string& word) {
    absl::string_view step = word;
    if (absl::ConsumePrefix(&step, "print:")) return Print(step);
    if (absl::ConsumePrefix(&step, "count:")) return Count(Number(step), /*at_once=*/false);
    if (absl::ConsumePrefix(&step, "lines:")) return Count(Number(step), /*at_once=*/true);
    if (step == "kill" && phx_member_life(member_) == 0) raise(SIGKILL);
    if (absl::ConsumePrefix(&step, "mock=")) DieIfMine(word, absl::StrSplit(step, ','));
    return true;
  }

 private:
  bool Print(absl::string_view text) {
    return phx_member_print(member_, text.data(), text.size()) == 0;
  }
  bool Count(uint64_t lines, bool at_once) {
    std::string text;
    for (uint64_t i = 0; i < lines; ++i) {
      absl::StrAppend(&text, phx_member_task(member_), " ", i, "\n");
      if (at_once && i + 1 < lines) continue;
      if (!Print(text)) return false;
      text.clear();
    }
    return true;
  }
  void DieIfMine(const std::string& death, const std::vector<absl::string_view>& numbers) {
    const bool mine = numbers.size() == 4 &&
                      Number(numbers[0]) == static_cast<uint64_t>(phx_member_rank(member_)) &&
                      Number(numbers[3]) == phx_member_life(member_);
    if (mine) phx_member_die(member_, death.c_str());
  }

  phx_member* const member_;
};

bool Run(int argc, char** argv) {
  phx_client* const client = phx_connect(nullptr);
  if (client == nullptr) return false;
  phx_member* const member = phx_join(client, nullptr, nullptr, nullptr);
  bool done = member != nullptr;
  for (int i = 1; done && i < argc; ++i) done = Task(member).Do(argv[i]);
  done = done && phx_member_leave(member, 0) == 0;
  // An error is this thread's last one.
  if (done) phx_client_free(client);
  return done;
}

}  // namespace

int main(int argc, char** argv) {
  if (Run(argc, argv)) return 0;
  std::cout << "ERROR " << phx_error_code() << ": " << phx_error() << std::endl;
  return 1;
}
