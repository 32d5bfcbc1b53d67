// WorkerChannel: one server as a worker sees it: its life, the channel to it, the batch that is
// held back, and what was sent and is not answered.
//
//   kAway ──server lives──► kHello ──Welcome──► kOpen
//     ▲                       ▲                   │ messages lost, Reset: the next channel
//     └──── server died ──────┴───────────────────┘
//
// Pure. Belongs to a WorkerCore. One thread at a time.
#ifndef PHALANX_PS_WORKER_CHANNEL_H_
#define PHALANX_PS_WORKER_CHANNEL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/ps/key_lists.h"
#include "src/ps/ps_wire.h"
#include "src/ps/worker/pieces.h"

namespace phalanx::ps::internal {

class WorkerChannel {
 public:
  enum class State : uint8_t { kAway, kHello, kOpen };
  // A push or the end of a clock that was sent.
  struct Sent {
    uint32_t table = 0;
    Position at;
  };
  // A pull or a request without an answer.
  struct Asked {
    uint64_t ticket = 0;
    uint32_t piece = 0;
  };
  struct Message {
    uint64_t life = 0;
    std::string bytes;
  };

  // A batch is sent when it has so many bytes.
  explicit WorkerChannel(uint64_t batch_bytes = kBatchBytes) : batch_bytes_(batch_bytes) {}
  WorkerChannel(WorkerChannel&&) = default;

  // ---- events. What closes a channel drops the batch, and forgets what was sent.
  // Older news than known ones, and repeated ones, are ignored.
  void OnServer(bool live, uint64_t life);
  void OnLost(uint64_t life);
  void OnReset();
  // Returns true if this opens the channel.
  bool OnWelcome(uint64_t channel);
  // The server has taken so many in all. Returns those that it has taken since the last call.
  std::vector<Sent> OnDone(uint64_t count);

  State state() const { return state_; }
  bool open() const { return state_ == State::kOpen; }
  // A message of this life is for this channel's present life.
  bool Hears(uint64_t life) const { return state_ != State::kAway && life_ == life; }
  // What a Hello says. Without it: nothing.
  void SetHad(std::function<std::vector<Position>()> had) { had_ = std::move(had); }
  // Greater than that of any life that was named.
  bool IsNewer(uint64_t life) const { return !life_.has_value() || life > *life_; }
  uint64_t channel() const { return channel_; }
  // As a text: "died in life 2", "has not been seen", "has not welcomed this worker", "has not
  // answered".
  std::string Describe() const;

  // ---- what is sent. Does nothing unless the channel is open. A batch that is full goes at once.
  void AddPush(const Push& push);
  void AddClock(uint32_t table, uint64_t clock);
  // The number of the call, as in asked(), and about how many bytes the answer has: pulls go as
  // soon as their answers fill a batch, so that the server makes the first ones early.
  void AddPull(uint64_t call, const Pull& pull, uint64_t answer_bytes);
  void AddRequest(uint64_t call, const Request& request);
  void AskSnapshot(uint32_t table);
  // REQUIRES: the pull was answered with an object, on this channel.
  void AddRead(const Read& read);
  // Nothing waits for the object with which this pull, which was sent on this channel, will be
  // answered: TakeUnwanted returns it then, once.
  void GiveUp(const Read& read) { unwanted_[{read.ticket, read.piece}] = read; }
  std::optional<Read> TakeUnwanted(uint64_t ticket, uint32_t piece);
  // The pulls of this ticket were refused.
  void ForgetUnwanted(uint64_t ticket);
  // Sends the batch if nothing sent before has to be awaited: an update waits for the answers of
  // earlier updates alone, and pulls and requests for all answers.
  void FlushIfIdle();
  void Flush();
  // A question to the server, which answers it, so that both ends see if messages were lost: an
  // empty batch, or Hello again.
  void Probe();
  KeyLists& lists() { return lists_; }

  // ---- pulls and requests, in the order of calls; kept over all channels.
  void Ask(uint64_t call, const Asked& asked) { asked_.emplace(call, asked); }
  // It was answered, or nothing waits for it. `call` is not reused.
  void Answered(uint64_t call) { asked_.erase(call); }
  const std::map<uint64_t, Asked>& asked() const { return asked_; }

  bool has_messages() const { return !messages_.empty(); }
  std::vector<Message> TakeMessages();

 private:
  void Close();
  void SayHello();
  void SendHello();
  void Added(const WorkerEntry& entry);

  const uint64_t batch_bytes_;
  State state_ = State::kAway;
  std::optional<uint64_t> life_;
  uint64_t channel_ = 0;
  // Of this channel.
  uint64_t batches_ = 0;  // that were sent
  BatchWriter batch_;
  bool batch_has_updates_ = false;
  uint64_t batch_answers_ = 0;  // bytes of the answers of its pulls
  std::deque<Sent> sent_;       // not done; with what is in the batch
  uint64_t done_ = 0;           // how many the server has taken
  uint64_t flushed_ = 0;        // how many were sent
  uint64_t last_asked_ = 0;     // the last pull or request that was added to a batch
  uint64_t flushed_ask_ = 0;    // that was sent
  KeyLists lists_;
  std::map<std::pair<uint64_t, uint32_t>, Read> unwanted_;  // by ticket and piece
  // Of all channels.
  std::function<std::vector<Position>()> had_;
  std::map<uint64_t, Asked> asked_;  // by call
  std::vector<Message> messages_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_WORKER_CHANNEL_H_
