// A server or a worker of a job that `phalanx launch --servers S --workers W` starts, for tests:
//
//   launch_roles ROUNDS [TASK:ROUND ...]
//
// In each round a worker asks every server, and waits for its answer. Servers end when all workers
// have left. A TASK kills itself with SIGKILL in this round of its first life: a worker when it has
// asked, a server when it has been asked.
//
// Prints "asked ROUNDS in life L" or "answered in life L" and ends with 0; or prints "ERROR ..."
// and ends with 1.
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/job.h"

namespace {

using phalanx::Member;
using phalanx::Membership;
using phalanx::MemberState;

// How long a task waits for a message before it looks for deaths, and how often for an answer.
constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr int kLooks = 1000;

constexpr char kServer[] = "server";
constexpr char kWorker[] = "worker";

int NumberOf(const char* variable) {
  const char* const text = std::getenv(variable);
  int number = 0;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : -1;
}

// The life of the server with this rank, if it lives.
std::optional<uint64_t> LifeOf(const Membership& member, int server) {
  const std::vector<Member> servers = member.Members(kServer);
  if (server >= static_cast<int>(servers.size())) return std::nullopt;
  const Member& found = servers[static_cast<size_t>(server)];
  return found.live() ? std::optional(found.life) : std::nullopt;
}

bool WorkersHaveLeft(const Membership& member) {
  const std::vector<Member> workers = member.Members(kWorker);
  const auto left = [](const Member& worker) { return worker.state == MemberState::kLeft; };
  return static_cast<int>(workers.size()) == NumberOf("DMLC_NUM_WORKER") &&
         std::all_of(workers.begin(), workers.end(), left);
}

// What the server with this rank answers.
std::string Answer(int server, int round) {
  return absl::StrCat(round, " ", server * 1000 + round);
}

class Task {
 public:
  Task(Membership member, std::vector<std::string> deaths)
      : member_(std::move(member)), deaths_(std::move(deaths)) {}

  absl::Status Run(int rounds) {
    if (member_.role() == kServer) return Serve();
    for (int round = 0; round < rounds; ++round) {
      for (int server = 0; server < NumberOf("DMLC_NUM_SERVER"); ++server) {
        const absl::Status status = Ask(server, round);
        if (!status.ok()) return status;
      }
    }
    Print(absl::StrCat("asked ", rounds));
    return member_.Leave();
  }

 private:
  // Asks again when the server is in its next life.
  absl::Status Ask(int server, int round) {
    std::optional<uint64_t> asked;
    for (int look = 0; look < kLooks; ++look) {
      const std::optional<uint64_t> life = LifeOf(member_, server);
      if (life && life != asked) {
        const absl::Status sent =
            member_.Send(server, absl::StrCat(round), {.role = kServer, .life = life})
                .Wait()
                .status();
        if (!sent.ok() && !absl::IsUnavailable(sent)) return sent;
        if (sent.ok()) asked = life;
        DieIn(round);
      }
      const absl::StatusOr<phalanx::Message> message = member_.Receive(kLook);
      if (absl::IsDeadlineExceeded(message.status())) continue;
      if (!message.ok()) return message.status();
      // Others are answers to a question that was asked twice.
      if (message->role == kServer && message->bytes == Answer(server, round)) {
        return absl::OkStatus();
      }
    }
    return absl::DeadlineExceededError(absl::StrCat("no answer of server", server));
  }

  absl::Status Serve() {
    while (true) {
      const absl::StatusOr<phalanx::Message> question = member_.Receive(kLook);
      if (absl::IsDeadlineExceeded(question.status())) {
        if (!WorkersHaveLeft(member_)) continue;
        Print("answered");
        return member_.Leave();
      }
      if (!question.ok()) return question.status();
      int round = 0;
      if (question->role != kWorker || !absl::SimpleAtoi(question->bytes, &round)) {
        return absl::InternalError(absl::StrCat("a message of ", question->role));
      }
      DieIn(round);
      const absl::Status sent = member_
                                    .Send(question->rank, Answer(member_.rank(), round),
                                          {.role = kWorker, .life = question->life})
                                    .Wait()
                                    .status();
      // A worker that has died meanwhile asks again.
      if (!sent.ok() && !absl::IsUnavailable(sent)) return sent;
    }
  }

  void DieIn(int round) const {
    const std::string death = absl::StrCat(member_.task(), ":", round);
    const bool mine = std::find(deaths_.begin(), deaths_.end(), death) != deaths_.end();
    if (mine && member_.life() == 0) raise(SIGKILL);
  }
  void Print(const std::string& done) const {
    std::cout << done << " in life " << member_.life() << std::endl;
  }

  const Membership member_;
  const std::vector<std::string> deaths_;
};

absl::Status Run(int rounds, std::vector<std::string> deaths) {
  const auto client = phalanx::Client::Connect();
  if (!client.ok()) return client.status();
  const auto member = (*client)->Join("", "", {});
  if (!member.ok()) return member.status();
  return Task(*member, std::move(deaths)).Run(rounds);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 0;
  if (argc < 2 || !absl::SimpleAtoi(argv[1], &rounds)) return 2;
  const absl::Status status = Run(rounds, std::vector<std::string>(argv + 2, argv + argc));
  if (status.ok()) return 0;
  std::cout << "ERROR " << status << std::endl;
  return 1;
}
