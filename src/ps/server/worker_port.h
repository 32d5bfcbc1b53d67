// WorkerPort: one worker as a server sees it: its life, the channel from it, and the batch for it.
//
//   kClosed ──Hello──► kHello ──welcomed──► kOpen
//      ▲                 ▲                    │ the next Hello
//      │                 └────────────────────┤
//      └── messages lost, a bad message, the life has ended, a new life
//
// Pure. Belongs to a ServerCore. One thread at a time.
#ifndef PHALANX_PS_SERVER_WORKER_PORT_H_
#define PHALANX_PS_SERVER_WORKER_PORT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "phalanx/member_state.h"
#include "src/ps/key_lists.h"
#include "src/ps/ps_wire.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

struct WorkerPort {
  enum class State : uint8_t { kClosed, kHello, kOpen };
  // What the worker knows of a table.
  struct Shown {
    uint64_t min_clock = 0;
    // Without the answers of pulls, which it ignores if it has given them up.
    uint64_t room_clock = 0;
    Position durable = {};
    bool failed = false;
  };

  // ---- of the newest life
  MemberState member = MemberState::kAbsent;
  std::optional<uint64_t> life;
  bool welcomed = false;            // once at least
  std::optional<uint64_t> channel;  // of the last Hello
  std::vector<Position> had;        // as it says
  bool broken = false;              // its last channel was, and it sends nothing again

  // ---- of the channel
  State state = State::kClosed;
  KeyLists lists;
  uint64_t batches = 0;       // that have come
  uint64_t taken = 0;         // pushes and clock ends
  uint64_t acknowledged = 0;  // of them, with Done
  BatchWriter out;
  std::vector<Shown> shown;  // by table

  bool open() const { return state == State::kOpen; }
  // Its life has ended.
  bool gone() const { return member == MemberState::kDied || member == MemberState::kLeft; }

  // A life begins: nothing of the one before it counts.
  void BeginLife(uint64_t number) {
    *this = WorkerPort();
    life = number;
    member = MemberState::kLive;
  }
  void Close() {
    state = State::kClosed;
    lists.Clear();
    batches = 0;
    taken = 0;
    acknowledged = 0;
    out = BatchWriter();
    shown.clear();
  }
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_WORKER_PORT_H_
