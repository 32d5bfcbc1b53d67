#include "src/client/ps/describe_door.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/time/clock.h"
#include "src/common/time/instant.h"

namespace phalanx::ps::internal {
namespace {

// Questions and answers that are not read.
constexpr absl::Duration kTtl = absl::Minutes(1);
constexpr absl::Duration kAskAgain = absl::Milliseconds(20);

ObjectId DoorOf(const Client& client, const std::string& job, const std::string& role, int rank) {
  return client.Id("phalanx.ps", absl::StrCat(job, "/", role, "/", rank, "/describe"));
}

absl::Duration Left(Instant until) {
  return std::max(absl::ZeroDuration(), until - MonotonicNow());
}

PutOptions Passing() {
  PutOptions options;
  options.ttl = kTtl;
  return options;
}

// Another one has asked at the same time, or the door is between two questions.
void Pause(Client& client, Instant until) {
  const absl::Duration pause = std::min(kAskAgain, Left(until));
  client.Get(ObjectId::Random(), {.timeout = pause}).Wait().status().IgnoreError();
}

// Behind the door, which may have been replaced since it was found.
absl::StatusOr<std::string> Ask(Client& client, const ObjectId& door, Instant until) {
  while (MonotonicNow() < until) {
    const absl::StatusOr<Buffer> found = client.Get(door, {.timeout = Left(until)}).Wait();
    absl::StatusOr<ObjectId> question = absl::NotFoundError("");
    if (found.ok()) question = ObjectId::FromBinary(found->view());
    if (!question.ok()) {
      Pause(client, until);
      continue;
    }
    const ObjectId answer = ObjectId::Random();
    const absl::StatusOr<PutResult> put =
        client.Put(*question, answer.binary(), Passing()).Wait(Left(until));
    if (!put.ok()) return put.status();
    if (put->already_existed) {
      Pause(client, until);
      continue;
    }
    const absl::StatusOr<Buffer> text = client.Get(answer, {.timeout = Left(until)}).Wait();
    if (text.ok()) return std::string(text->view());
  }
  return absl::DeadlineExceededError(
      "it has not answered; its process is stopped, or in one update for long");
}

}  // namespace

DescribeDoor::DescribeDoor(std::shared_ptr<Client> client, const std::string& job,
                           const std::string& role, int rank)
    : client_(std::move(client)), door_(DoorOf(*client_, job, role, rank)) {}

DescribeDoor::~DescribeDoor() {
  if (state_ == State::kClearing) clearing_.Cancel();
  if (state_ == State::kPutting) putting_.Cancel();
  if (state_ != State::kOpen) return;
  question_.Cancel();
  client_->Delete(door_);
}

void DescribeDoor::Begin() { Clear(); }

// That of an earlier life, or of the question before.
void DescribeDoor::Clear() {
  clearing_ = client_->Delete(door_);
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
  if (!ready()) return;
  std::erase_if(answers_, [](const Future<PutResult>& answer) { return answer.ready(); });
  if (state_ == State::kClearing) {
    question_id_ = ObjectId::Random();
    PutOptions options;
    options.owned = true;
    putting_ = client_->Put(door_, question_id_.binary(), options);
    state_ = State::kPutting;
  } else if (state_ == State::kPutting) {
    const absl::StatusOr<PutResult> put = putting_.Wait();
    // Another life has a door: then this one ends soon. Without one nothing is lost but answers.
    if (!put.ok() || put->already_existed) {
      state_ = State::kClosed;
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

std::vector<absl::StatusOr<std::string>> AskServers(Client& client, const std::string& job,
                                                    const std::vector<Asked>& tasks,
                                                    absl::Duration timeout) {
  const Instant until = MonotonicNow() + timeout;
  std::vector<ObjectId> doors;
  std::vector<Future<bool>> there;
  for (const Asked& task : tasks) {
    doors.push_back(DoorOf(client, job, task.role, task.rank));
    there.push_back(client.Contains(doors.back(), timeout));
  }
  std::vector<absl::StatusOr<std::string>> texts;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const absl::StatusOr<bool> found = there[i].Wait(Left(until));
    texts.emplace_back(std::string());
    if (!found.ok()) texts.back() = found.status();
    if (!found.ok() || !*found) continue;
    // What is left of the time is shared, so that one that is stopped leaves some to the others.
    const absl::Duration share = Left(until) / static_cast<double>(tasks.size() - i);
    texts.back() = Ask(client, doors[i], MonotonicNow() + share);
  }
  return texts;
}

}  // namespace phalanx::ps::internal
