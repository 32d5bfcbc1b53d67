// MemberSends: messages of one member to members of another role, one queue for each of them. A
// part of a queue is with the node, the rest waits here, so that a slow receiver holds up its own
// messages only, and the node's limit for a member is not reached.
//
// Lock held, in all methods (see Connection); but for the constructor.
#ifndef PHALANX_CLIENT_PS_MEMBER_SENDS_H_
#define PHALANX_CLIENT_PS_MEMBER_SENDS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "phalanx/job.h"
#include "src/client/connection/call.h"
#include "src/client/jobs/member_call.h"

namespace phalanx::ps::internal {

// Bytes of messages that the node has and has not sent: of one receiver, and of all. A message is
// sent if nothing else is with the node, whatever its size.
inline constexpr uint64_t kSendWindow = uint64_t{4} << 20;
inline constexpr uint64_t kSendWindowOfAll = uint64_t{24} << 20;

class MemberSends final : public phalanx::internal::Call {
 public:
  // `lost` is called with the lock held: messages to this life of the receiver were lost, or it is
  // not there.
  using Lost = std::function<void(int rank, uint64_t life)>;
  MemberSends(const phalanx::internal::MemberCall& member, std::string role, Lost lost)
      : Call(member.shared_connection(), "Send", ObjectId()),
        member_(member.request()),
        role_(std::move(role)),
        lost_(std::move(lost)) {}

  // Messages to one receiver arrive in the order of the calls.
  void Add(int rank, uint64_t life, std::string bytes);
  // The owner is gone: nothing is lost any more.
  void Stop();
  // Bytes that were added and have not left the node.
  uint64_t unsent() const { return unsent_; }
  // By receiver, bytes that have left the node, or are lost, since the last call of TakeLeft.
  bool has_left() const { return !left_.empty(); }
  std::map<int, uint64_t> TakeLeft() { return std::exchange(left_, {}); }

  void OnAnswer(uint64_t request, const phalanx::internal::local::Answer& answer) override;
  void OnFailure(const absl::Status& why) override;

 private:
  struct Queued {
    uint64_t life;
    std::string bytes;
  };
  struct Receiver {
    std::deque<Queued> queue;
    uint64_t at_node = 0;  // bytes
  };
  struct UnderWay {
    int rank;
    uint64_t life;
    uint64_t bytes;
  };

  void SendTo(int rank, Receiver& receiver);

  const uint64_t member_;
  const std::string role_;
  Lost lost_;
  std::map<int, Receiver> receivers_;
  std::map<uint64_t, UnderWay> under_way_;  // by the number of the request
  uint64_t at_node_ = 0;
  uint64_t unsent_ = 0;
  std::map<int, uint64_t> left_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_MEMBER_SENDS_H_
