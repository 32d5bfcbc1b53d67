// DescribeDoor: how `phalanx describe --job` asks a server what it does. Without a question
// nothing is sent.
//
//   describe                          server
//      │                                │── Put door = id of a question, which it Gets ──►
//      │── Get door ──►                 │
//      │── Put question = id of an answer ──► its Get ends
//      │◄── Get answer ──────────────── Put answer, and another door
//
// The door has a name of this life of the server, and is owned: it ends with the server. An earlier
// life that was stopped, and goes on, cannot close it. A server that is stopped, or busy with one
// update for long, gives no answer, and is not waited for beyond a limit. Of two that ask at once,
// one finds the question taken, and asks again.
//
// Belongs to a ServerState. The thread of Run, but ready().
#ifndef PHALANX_CLIENT_PS_DESCRIBE_DOOR_H_
#define PHALANX_CLIENT_PS_DESCRIBE_DOOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "src/common/time/instant.h"

namespace phalanx::ps::internal {

// A task of a job, in this life.
struct Asked {
  std::string role;
  int rank = 0;
  uint64_t life = 0;
};

class DescribeDoor {
 public:
  DescribeDoor(std::shared_ptr<Client> client, const std::string& job, const Asked& server);
  ~DescribeDoor();

  // Opens it.
  void Begin();
  // Closes it, as the destructor does.
  void End();
  // Step has something to do. Any thread.
  bool ready() const;
  // Step has something to do then, although ready() is false.
  Instant next() const { return next_; }
  // Answers a question, if there is one.
  void Step(absl::FunctionRef<std::string()> describe);

 private:
  enum class State { kClosed, kClearing, kPutting, kOpen };
  void Put();
  void Clear();
  void OnQuestion(absl::FunctionRef<std::string()> describe);

  const std::shared_ptr<Client> client_;
  const ObjectId door_;
  State state_ = State::kClosed;
  Instant next_ = Instant::Infinite();
  ObjectId question_id_;
  Future<Done> clearing_;
  Future<PutResult> putting_;
  Future<Buffer> question_;
  std::vector<Future<PutResult>> answers_;  // that have not ended
};

// What each says, by task: nothing if it is no server of a parameter server, which are the tasks of
// the roles of which one has a door. DeadlineExceeded: it has not answered. Unavailable: it has no
// door yet. All are asked at once, and waited for until the timeout. No door is known, and not all
// could be looked for: the error of one.
absl::StatusOr<std::vector<absl::StatusOr<std::string>>> AskServers(Client& client,
                                                                    const std::string& job,
                                                                    const std::vector<Asked>& tasks,
                                                                    absl::Duration timeout);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_DESCRIBE_DOOR_H_
