#include "src/client/ps/describe_door.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::ps::internal {
namespace {

// Questions and answers that are not read.
constexpr absl::Duration kTtl = absl::Minutes(1);
constexpr absl::Duration kAskAgain = absl::Milliseconds(20);
constexpr int kLooks = 5;

// A door that could not be put: the shard is away, or the node has no memory.
constexpr absl::Duration kPutAgain = absl::Seconds(5);

ObjectId DoorOf(const std::string& job, const Asked& server) {
  return ObjectId::FromName("phalanx.ps", absl::StrCat(job, "/", server.role, "/", server.rank, "/",
                                                       server.life, "/describe"));
}

absl::Duration Left(Instant until) {
  return std::max(absl::ZeroDuration(), until - MonotonicNow());
}

PutOptions Passing() {
  PutOptions options;
  options.ttl = kTtl;
  return options;
}

// Drives the client for a while.
void Pause(Client& client, Instant until) {
  const absl::Duration pause = std::min(kAskAgain, Left(until));
  client.Get(ObjectId::Random(), {.timeout = pause}).Wait().status().IgnoreError();
}

// One question: behind the door, which may have been replaced since it was found.
class Question {
 public:
  Question(Client& client, const ObjectId& door, Instant until)
      : client_(client), door_(door), until_(until) {
    Find();
  }

  // Goes on if it can. True: it has ended.
  bool Step();
  // If it has not ended: DeadlineExceeded; Unavailable if there is no door.
  const absl::StatusOr<std::string>& text() const { return text_; }

 private:
  enum class State { kFinding, kAsking, kWaiting, kEnded };
  void Find();
  void AskBehind(const absl::StatusOr<Buffer>& door);

  Client& client_;
  const ObjectId door_;
  const Instant until_;
  State state_ = State::kFinding;
  ObjectId answer_id_;
  Future<Buffer> found_;
  Future<PutResult> asked_;
  Future<Buffer> answer_;
  absl::StatusOr<std::string> text_ =
      absl::UnavailableError("it is not in Run yet, or its door is away");
};

void Question::Find() {
  found_ = client_.Get(door_, {.timeout = Left(until_)});
  state_ = State::kFinding;
}

void Question::AskBehind(const absl::StatusOr<Buffer>& door) {
  if (!door.ok()) return Find();
  const absl::StatusOr<ObjectId> question = ObjectId::FromBinary(door->view());
  if (!question.ok()) return Find();
  text_ = absl::DeadlineExceededError(
      "it has not answered; its process is stopped, or in one update for long");
  answer_id_ = ObjectId::Random();
  asked_ = client_.Put(*question, answer_id_.binary(), Passing());
  state_ = State::kAsking;
}

bool Question::Step() {
  if (state_ == State::kFinding && found_.ready()) {
    AskBehind(found_.Wait());
  } else if (state_ == State::kAsking && asked_.ready()) {
    const absl::StatusOr<PutResult> put = asked_.Wait();
    if (!put.ok()) {
      text_ = put.status();
      state_ = State::kEnded;
    } else if (put->already_existed) {
      // Another one has asked at the same time, or the door is between two questions.
      Find();
    } else {
      answer_ = client_.Get(answer_id_, {.timeout = Left(until_)});
      state_ = State::kWaiting;
    }
  } else if (state_ == State::kWaiting && answer_.ready()) {
    const absl::StatusOr<Buffer> answer = answer_.Wait();
    if (answer.ok()) text_ = std::string(answer->view());
    state_ = State::kEnded;
  }
  return state_ == State::kEnded;
}

// The roles of which one task has a door. The error of a task, if there are none.
absl::StatusOr<std::set<std::string>> RolesWithDoors(Client& client, const std::string& job,
                                                     const std::vector<Asked>& tasks,
                                                     Instant until) {
  std::set<std::string> roles;
  absl::Status not_found;
  // Behind a question a server has no door for a moment.
  for (int look = 0; look < kLooks && roles.empty() && not_found.ok(); ++look) {
    if (look > 0) Pause(client, until);
    std::vector<Future<bool>> there;
    for (const Asked& task : tasks) {
      there.push_back(client.Contains(DoorOf(job, task), Left(until)));
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      const absl::StatusOr<bool> found = there[i].Wait(Left(until));
      if (!found.ok()) {
        not_found = found.status();
      } else if (*found) {
        roles.insert(tasks[i].role);
      }
    }
  }
  if (roles.empty()) PHALANX_RETURN_IF_ERROR(not_found);
  return roles;
}

}  // namespace

DescribeDoor::DescribeDoor(std::shared_ptr<Client> client, const std::string& job,
                           const Asked& server)
    : client_(std::move(client)), door_(DoorOf(job, server)) {}

DescribeDoor::~DescribeDoor() { End(); }

void DescribeDoor::Begin() { Put(); }

void DescribeDoor::End() {
  if (state_ == State::kPutting) putting_.Cancel();
  if (state_ == State::kOpen) question_.Cancel();
  // A door that is being cleared has no next one.
  if (state_ == State::kPutting || state_ == State::kOpen) client_->Release({door_});
  state_ = State::kClosed;
  next_ = Instant::Infinite();
}

void DescribeDoor::Put() {
  question_id_ = ObjectId::Random();
  PutOptions options;
  options.owned = true;
  putting_ = client_->Put(door_, question_id_.binary(), options);
  state_ = State::kPutting;
}

// That of the question before. Its hold would outlive it.
void DescribeDoor::Clear() {
  clearing_ = client_->Delete(door_);
  client_->Release({door_});
  state_ = State::kClearing;
}

bool DescribeDoor::ready() const {
  switch (state_) {
    case State::kClosed:
      return false;
    case State::kClearing:
      return clearing_.ready();
    case State::kPutting:
      return putting_.ready();
    case State::kOpen:
      return question_.ready();
  }
  return false;
}

void DescribeDoor::Step(absl::FunctionRef<std::string()> describe) {
  if (state_ == State::kClosed && MonotonicNow() >= next_) {
    next_ = Instant::Infinite();
    return Clear();
  }
  if (!ready()) return;
  std::erase_if(answers_, [](const Future<PutResult>& answer) { return answer.ready(); });
  if (state_ == State::kClearing) {
    Put();
  } else if (state_ == State::kPutting) {
    const absl::StatusOr<PutResult> put = putting_.Wait();
    if (!put.ok() || put->already_existed) {
      state_ = State::kClosed;
      next_ = MonotonicNow() + kPutAgain;
      return;
    }
    question_ = client_->Get(question_id_);
    state_ = State::kOpen;
  } else {
    OnQuestion(describe);
  }
}

void DescribeDoor::OnQuestion(absl::FunctionRef<std::string()> describe) {
  const absl::StatusOr<Buffer> question = question_.Wait();
  if (!question.ok()) {
    state_ = State::kClosed;
    return;
  }
  const absl::StatusOr<ObjectId> answer = ObjectId::FromBinary(question->view());
  if (answer.ok()) answers_.push_back(client_->Put(*answer, describe(), Passing()));
  Clear();
}

absl::StatusOr<std::vector<absl::StatusOr<std::string>>> AskServers(Client& client,
                                                                    const std::string& job,
                                                                    const std::vector<Asked>& tasks,
                                                                    absl::Duration timeout) {
  const Instant until = MonotonicNow() + timeout;
  PHALANX_ASSIGN_OR_RETURN(const std::set<std::string> roles,
                           RolesWithDoors(client, job, tasks, until));
  std::vector<absl::StatusOr<std::string>> texts(tasks.size(), std::string());
  std::vector<std::unique_ptr<Question>> questions(tasks.size());
  size_t open = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!roles.contains(tasks[i].role)) continue;
    questions[i] = std::make_unique<Question>(client, DoorOf(job, tasks[i]), until);
    ++open;
  }
  // One that does not answer leaves the others all of the time.
  while (open > 0 && MonotonicNow() < until) {
    Pause(client, until);
    open = 0;
    for (const std::unique_ptr<Question>& question : questions) {
      if (question != nullptr && !question->Step()) ++open;
    }
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (questions[i] != nullptr) texts[i] = questions[i]->text();
  }
  return texts;
}

}  // namespace phalanx::ps::internal
