#include "src/ps/worker/channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"

namespace phalanx::ps::internal {

void WorkerChannel::OnServer(bool live, uint64_t life) {
  // News and messages take different ways, so old news can come behind a new life's message.
  if (life_.has_value() && life < *life_) return;
  const bool is_new = IsNewer(life);
  life_ = life;
  if (live && is_new) return SayHello();
  if (live || state_ == State::kAway) return;
  Close();
  state_ = State::kAway;
}

void WorkerChannel::OnLost(uint64_t life) {
  if (Hears(life)) SayHello();
}

// The server has closed the channel: what was sent on it is not known to have come.
void WorkerChannel::OnReset() { SayHello(); }

// One for an older Hello is void: the server's end has begun anew since.
bool WorkerChannel::OnWelcome(uint64_t channel) {
  // A Welcome for an older channel was on its way when messages were lost.
  if (state_ != State::kHello || channel != channel_) return false;
  state_ = State::kOpen;
  return true;
}

// Counts from the start of the channel, so one that is lost is made up for by the next.
std::vector<WorkerChannel::Sent> WorkerChannel::OnDone(uint64_t count) {
  std::vector<Sent> taken;
  while (done_ < count && !sent_.empty()) {
    taken.push_back(sent_.front());
    sent_.pop_front();
    ++done_;
  }
  return taken;
}

// For texts of the form "server 1 (died in life 2)".
std::string WorkerChannel::Describe() const {
  if (!life_.has_value()) return "has not been seen";
  if (state_ == State::kAway) return absl::StrCat("died in life ", *life_);
  return open() ? "has not answered" : "has not welcomed this worker";
}

void WorkerChannel::AddPush(const Push& push) {
  if (!open()) return;
  // Done says how many, and not which: so this list is what was sent, in its order.
  sent_.push_back({push.table, push.at});
  batch_has_updates_ = true;
  Added(push);
}

void WorkerChannel::AddClock(uint32_t table, uint64_t clock) {
  if (!open()) return;
  // The end of a clock has the position at which the next one begins.
  sent_.push_back({table, {.clock = clock + 1}});
  batch_has_updates_ = true;
  if (DefectActive(Defect::kPsClockBeforePushes)) {
    BatchWriter early;
    early.Add(WorkerEntry(ClockEnd{.table = table, .clock = clock}));
    messages_.push_back({*life_, early.TakeWorkerBatch(channel_, batches_++)});
    return;
  }
  Added(ClockEnd{.table = table, .clock = clock});
}

void WorkerChannel::AddPull(uint64_t call, const Pull& pull, uint64_t answer_bytes) {
  if (!open()) return;
  last_asked_ = call;
  // Questions are small: by their own bytes alone those of millions of keys would be one batch.
  batch_answers_ += answer_bytes;
  Added(pull);
  if (batch_answers_ >= batch_bytes_) Flush();
}

void WorkerChannel::AddRequest(uint64_t call, const Request& request) {
  if (!open()) return;
  last_asked_ = call;
  Added(request);
}

void WorkerChannel::AskSnapshot(uint32_t table) {
  if (!open()) return;
  Added(internal::AskSnapshot{.table = table});
  Flush();
}

void WorkerChannel::AddRead(const Read& read) {
  if (open()) Added(read);
}

std::optional<Read> WorkerChannel::TakeUnwanted(uint64_t ticket, uint32_t piece) {
  const auto found = unwanted_.find({ticket, piece});
  if (found == unwanted_.end()) return std::nullopt;
  const Read read = found->second;
  unwanted_.erase(found);
  return read;
}

void WorkerChannel::ForgetUnwanted(uint64_t ticket) {
  const auto first = unwanted_.lower_bound({ticket, 0});
  unwanted_.erase(first, unwanted_.lower_bound({ticket + 1, 0}));
}

void WorkerChannel::Added(const WorkerEntry& entry) {
  // Full before it is too large: kBatchBytes and one more entry fit into a message.
  batch_.Add(entry);
  // A batch goes out with the entry that fills it.
  if (batch_.size() >= batch_bytes_) Flush();
}

// An update is answered as soon as it has come, so what is held back behind one waits for a round
// trip at most. A pull can wait for other workers, which may wait for this worker's clock.
void WorkerChannel::FlushIfIdle() {
  if (!open() || batch_.empty() || done_ < flushed_) return;
  const bool asked = !asked_.empty() && asked_.begin()->first <= flushed_ask_;
  if (batch_has_updates_ || !asked) Flush();
}

// What is behind `flushed_` is the next batch.
void WorkerChannel::Flush() {
  if (!open() || batch_.empty()) return;
  messages_.push_back({*life_, batch_.TakeWorkerBatch(channel_, batches_++)});
  batch_has_updates_ = false;
  batch_answers_ = 0;
  flushed_ = done_ + sent_.size();
  flushed_ask_ = last_asked_;
}

// The server answers each of these, and an answer that cannot be sent shows it that earlier ones
// were lost.
void WorkerChannel::Probe() {
  if (state_ == State::kHello) {
    SendHello();
  } else if (open()) {
    Flush();
    messages_.push_back({*life_, batch_.TakeWorkerBatch(channel_, batches_++)});
  }
}

void WorkerChannel::Close() {
  batches_ = 0;
  batch_ = BatchWriter();
  batch_has_updates_ = false;
  batch_answers_ = 0;
  sent_.clear();
  done_ = 0;
  flushed_ = 0;
  last_asked_ = 0;
  flushed_ask_ = 0;
  // The server's lists are cleared by the next Hello.
  lists_.Clear();
  // The server forgets with the channel what it has answered there.
  unwanted_.clear();
}

// Numbers of channels are not used again in this life, so that what is on its way for an older one
// is ignored by both ends.
void WorkerChannel::SayHello() {
  Close();
  ++channel_;
  state_ = State::kHello;
  SendHello();
}

void WorkerChannel::SendHello() {
  Hello hello{.channel = channel_};
  if (had_ != nullptr) hello.had = had_();
  messages_.push_back({*life_, Encode(WorkerMessage(std::move(hello)))});
}

std::vector<WorkerChannel::Message> WorkerChannel::TakeMessages() {
  return std::exchange(messages_, {});
}

}  // namespace phalanx::ps::internal
