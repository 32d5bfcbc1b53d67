#include "src/sim/cluster/history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/common/check.h"

namespace phalanx::sim {
namespace {

constexpr absl::string_view kMetadataPrefix = "attempt ";

// Returns "attempt 17", padded to the requested length.
std::string MetadataOf(uint64_t number, size_t bytes) {
  std::string metadata = absl::StrCat(kMetadataPrefix, number);
  if (metadata.size() < bytes) metadata.append(bytes - metadata.size(), '.');
  return metadata;
}

// Returns 0 if the metadata has another form.
uint64_t NumberIn(absl::string_view metadata) {
  if (!absl::ConsumePrefix(&metadata, kMetadataPrefix)) return 0;
  while (absl::ConsumeSuffix(&metadata, ".")) {
  }
  uint64_t number = 0;
  return absl::SimpleAtoi(metadata, &number) ? number : 0;
}

}  // namespace

std::string History::NameOf(const ObjectId& id) {
  const auto it = names_.emplace(id, static_cast<int>(names_.size()) + 1).first;
  return absl::StrCat("o", it->second);
}

ObjectName History::ObjectNameOf(const ObjectId& id) const {
  const auto it = object_names_.find(id);
  return it == object_names_.end() ? ObjectName() : it->second;
}

// ------------------------------------------------------------------------------------ attempts

Attempt& History::Begin(const ObjectId& id, uint64_t size_bytes, int slices, size_t metadata_bytes,
                        const NodeKey& creator) {
  const uint64_t number = attempts_.size() + 1;
  Attempt attempt;
  attempt.number = number;
  attempt.id = id;
  attempt.size_bytes = size_bytes;
  attempt.slices = slices;
  attempt.metadata = MetadataOf(number, metadata_bytes);
  attempt.creator = creator;
  attempt.begun = scheduler_.now();
  attempts_.push_back(std::move(attempt));
  return attempts_.back();
}

uint64_t History::Identify(const ObjectId& id, const Generation& generation,
                           absl::string_view metadata, uint64_t size_bytes) {
  const uint64_t number = NumberIn(metadata);
  const auto breach = [&](absl::string_view what) {
    journal_.Violation(absl::StrCat("a copy of ", NameOf(id), " generation ", generation.ToString(),
                                    " with ", size_bytes, " bytes and metadata of attempt ", number,
                                    ": ", what));
    return uint64_t{0};
  };
  if (number == 0 || number > attempts_.size()) return breach("no attempt has this metadata");
  Attempt& attempt = this->attempt(number);
  if (attempt.id != id) return breach("the attempt was at another object");
  if (attempt.metadata != metadata) return breach("the metadata is not the attempt's");
  if (attempt.size_bytes != size_bytes) {
    return breach(absl::StrCat("the attempt has ", attempt.size_bytes, " bytes"));
  }
  // A reader can see a Put before its answer, so the generation is bound here too.
  Bind(attempt, generation);
  return attempt.generation == generation ? number : 0;
}

uint64_t History::AttemptOf(const Generation& generation) const {
  const auto it = attempt_of_.find(generation);
  return it == attempt_of_.end() ? 0 : it->second;
}

void History::Bind(Attempt& attempt, const Generation& generation) {
  const auto it = attempt_of_.emplace(generation, attempt.number).first;
  const bool first = !attempt.generation.has_value();
  if (first) attempt.generation = generation;
  if (it->second != attempt.number || attempt.generation != generation) {
    journal_.Violation(absl::StrCat("generation ", generation.ToString(), " is attempt ",
                                    it->second, " and attempt ", attempt.number));
    // The creator includes the incarnation, so this also catches a copy of an earlier life.
  } else if (generation.creator != attempt.creator) {
    journal_.Violation(absl::StrCat("generation ", generation.ToString(), " of attempt ",
                                    attempt.number, " was created by ",
                                    attempt.creator.ToString()));
  }
}

void History::NoteAdopted(const Generation& generation) {
  const uint64_t number = AttemptOf(generation);
  if (number == 0 || attempt(number).adopted) return;
  attempt(number).adopted = true;
  journal_.Note(NameOf(attempt(number).id), " adopted: attempt ", number);
}

void History::CheckAdoptedAnswer(Attempt& attempt) {
  const bool first = !std::exchange(attempt.adopted, true);
  // Known before: the generation was adopted at some time, and the answer can be older than a
  // change.
  if (!first || PossiblyDeleted(attempt)) return;
  const auto now = oracle_->AdoptedNow(attempt.id, attempt.creator, attempt.begun);
  // Without contact the answer can be outdated, and then it is not checked.
  if (!now || *now == attempt.generation) return;
  journal_.Violation(absl::StrCat("attempt ", attempt.number, " at ", NameOf(attempt.id),
                                  " was answered as adopted, but the shard has ",
                                  now->valid() ? now->ToString() : std::string("nothing")));
}

// ---------------------------------------------------------------------------------- operations

Operation& History::BeginOperation(absl::string_view what, const ObjectId& id, const NodeKey& node,
                                   Instant deadline) {
  Operation operation;
  operation.number = operations_.size() + 1;
  operation.what = std::string(what);
  operation.id = id;
  operation.node = node;
  operation.begun = scheduler_.now();
  operation.deadline = deadline;
  journal_.Note("#", operation.number, " ", node.ToString(), " ", what, " ", NameOf(id));
  operations_.push_back(std::move(operation));
  return operations_.back();
}

void History::End(uint64_t number, const absl::Status& status) {
  Operation& operation = this->operation(number);
  if (operation.state == Operation::State::kEnded) {
    journal_.Violation(absl::StrCat("#", number, " ", operation.what, " ended twice"));
    return;
  }
  // The store promises no answer after Cancel.
  if (operation.state == Operation::State::kCancelled) {
    journal_.Violation(
        absl::StrCat("#", number, " ", operation.what, " was answered after it was cancelled"));
  }
  operation.state = Operation::State::kEnded;
  operation.status = status;
  journal_.Note("#", number, " -> ", status.ok() ? "OK" : status.ToString());
}

void History::Drop(uint64_t number, Operation::State state) {
  Operation& operation = this->operation(number);
  if (operation.state != Operation::State::kRunning) return;
  operation.state = state;
  journal_.Note("#", number, state == Operation::State::kLost ? " lost" : " cancelled");
}

void History::RecordView(uint64_t number, uint64_t seen, bool complete) {
  if (seen == 0) return;
  Operation& operation = this->operation(number);
  const Attempt& attempt = this->attempt(seen);
  operation.attempt = seen;
  const auto breach = [&](absl::string_view what) {
    journal_.Violation(absl::StrCat("#", number, " ", operation.what, " ", NameOf(operation.id),
                                    " returned attempt ", seen, ", ", what));
  };
  if (attempt.id != operation.id) breach("which was at another object");
  if (complete && !attempt.sealing) breach("which is not sealed");
  // A writer publishes before its seal is refused, so only Puts are checked.
  if (complete && attempt.state == AttemptState::kDropped && !attempt.written) {
    breach("which was answered as dropped");
  }
  for (const Deletion& deletion : deletions_) {
    if (deletion.doomed != seen || !deletion.confirmed) continue;
    if (deletion.by != operation.node || deletion.ended > operation.begun) continue;
    // A restarted shard can have adopted the generation again.
    if (!deletion.undisturbed) continue;
    breach("whose deletion was confirmed to this node");
  }
}

// ----------------------------------------------------------------------------------- deletions

Deletion& History::BeginDeletion(const ObjectId& id, const NodeKey& by) {
  Deletion deletion;
  deletion.number = deletions_.size() + 1;
  deletion.id = id;
  deletion.by = by;
  deletion.begun = scheduler_.now();
  deletion.last_attempt_before = attempts_.size();
  // With trouble on the way the Delete can hit a later generation.
  if (const auto now = oracle_->AdoptedNow(id, by, scheduler_.now())) {
    deletion.doomed = AttemptOf(*now);
  }
  deletions_.push_back(std::move(deletion));
  return deletions_.back();
}

void History::EndDeletion(uint64_t number, const absl::Status& status) {
  Deletion& deletion = this->deletion(number);
  deletion.confirmed = status.ok();
  deletion.undisturbed = oracle_->ShardStarted(deletion.id) <= deletion.begun;
  // Trouble since the start: another generation can have been adopted in between.
  if (!oracle_->AdoptedNow(deletion.id, deletion.by, deletion.begun)) deletion.doomed = 0;
  // After any other error the outcome of the Delete is unknown.
  if (status.ok() || absl::IsNotFound(status)) deletion.ended = scheduler_.now();
}

void History::CloseDeletions() {
  for (Deletion& deletion : deletions_) {
    // Deletes with an unknown outcome end here; confirmed ones keep their time.
    deletion.ended = std::min(deletion.ended, scheduler_.now());
  }
}

bool History::PossiblyDeleted(const Attempt& attempt) const {
  return std::any_of(deletions_.begin(), deletions_.end(), [&](const Deletion& deletion) {
    // A Delete that ended before the attempt started cannot have hit it.
    return deletion.id == attempt.id && deletion.ended >= attempt.begun;
  });
}

}  // namespace phalanx::sim
