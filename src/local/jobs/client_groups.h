// One client's part in groups: its members' calls, the buffers into which it writes large inputs,
// and the large results that it reads.
//
//   GroupBuffer ──► free ──GroupCall──► in use ──settled, in a GroupDone──► free ──Abort──►
//   gone
//
// A buffer in use is an input that other nodes may still need although the call has ended; the next
// GroupDone names those that are free again. A large result is mapped like an object;
// the client releases its pin. Numbers of buffers and pins have kGroupNumber set, so that they
// differ from those of the store.
//
// A client can make a call before its input is complete, and names the bytes as it copies them. If
// it dies meanwhile, the group goes on as after the death of any member: nothing was folded that
// was not there.
//
// The client is shown parts of a large result while the call is under way, and copies them. If the
// nodes take the call again, it hears that these are void, and releases their memory: the call
// needs as much again. The result is mapped anew.
//
// A call that fails with a number is answered by a GroupDone without members, which has the number,
// and a Failed.
//
// Owned by a LocalSession; loop thread only.
#ifndef PHALANX_LOCAL_JOBS_CLIENT_GROUPS_H_
#define PHALANX_LOCAL_JOBS_CLIENT_GROUPS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/common/time/instant.h"
#include "src/jobs/group/service/group_service.h"
#include "src/jobs/group/service/store_group_memory.h"
#include "src/jobs/members/members.h"
#include "src/jobs/overlap/byte_ranges.h"
#include "src/local/local_outbox.h"
#include "src/local/local_protocol.h"

namespace phalanx::object_store {

inline constexpr uint64_t kGroupNumber = uint64_t{1} << 63;

class ClientGroups {
 public:
  // Queues an answer to the client.
  using Send = absl::AnyInvocable<void(LocalOutbox::Item item)>;

  // Both outlive this, or are null: then there are no groups.
  ClientGroups(jobs::GroupService* groups, jobs::StoreGroupMemory* memory, Send send);
  ~ClientGroups();
  ClientGroups(const ClientGroups&) = delete;
  ClientGroups& operator=(const ClientGroups&) = delete;

  // The client is answered unless an error is returned: FailedPrecondition without groups, and
  // those of GroupService::Call. If the input is not right, the call fails on all members.
  absl::Status Call(const jobs::LocalMember& member, const local::GroupCall& call,
                    Instant deadline);
  // More of an input is in its buffer. InvalidArgument, which ends the client, if that is
  // impossible.
  absl::Status OnFilled(const local::GroupFilled& filled);
  // Whether the client may still name bytes of the input of a call with this number.
  bool Fills(uint64_t request) const { return filling_.contains(request); }
  // The client is answered as by a Call, unless an error is returned: FailedPrecondition without
  // groups, and those of GroupService::AskResult.
  absl::Status AskResult(const jobs::LocalMember& member, const local::GroupResult& result,
                         Instant deadline);
  // As AskResult; the answer is a GroupProgress.
  absl::Status AskProgress(const jobs::LocalMember& member, const local::AskGroupProgress& ask,
                           Instant deadline);
  // The question ends. Ignores other requests.
  void CancelResult(uint64_t request);
  // As Call; ResourceExhausted beyond local::kMaxGroupBuffers.
  absl::Status MakeBuffer(const local::GroupBuffer& request, Instant deadline);
  // Return false if there is no such buffer or pin. The client may still be able to write into the
  // buffer, so its pages are not used again.
  bool DropBuffer(uint64_t number, ViewerId client);
  // Without `recycle` a process that the client forked can still see the result.
  bool Release(uint64_t pin, bool recycle, ViewerId client);
  // Whether the client can see memory of buffers or results.
  bool shows_memory() const { return !buffers_.empty() || !results_.empty(); }
  // The client is gone: what it can see is not used again.
  void End(ViewerId client);

 private:
  struct Buffer;

  absl::StatusOr<jobs::GroupCallRequest> RequestFor(const jobs::LocalMember& member,
                                                    const local::GroupCall& call, Instant deadline);
  absl::Status Ask(const jobs::LocalMember& member, jobs::GroupQuestion question);
  jobs::GroupService::CallDone DoneOf(uint64_t request);
  void OnDone(uint64_t request, const jobs::GroupDone& done);
  void OnPart(uint64_t request, const jobs::GroupPart& part);
  // Queues a Mapped, and returns the pin.
  uint64_t Show(uint64_t request, absl::string_view result,
                std::shared_ptr<const jobs::GroupMemory> memory);
  void AnswerCopied(uint64_t request, const jobs::GroupDone& done);
  void AnswerMapped(uint64_t request, const jobs::GroupDone& done);
  void OnBuffer(uint64_t request, absl::StatusOr<ScratchBlock> block);
  // `number`: of the call, or 0.
  void Fail(uint64_t request, const absl::Status& why, uint64_t number = 0);
  // Buffers that have become free since the last GroupDone.
  std::vector<uint64_t> TakeFree();
  // The GroupDone that was to name these is not sent: a later one names them.
  void PutBackFree(const std::vector<uint64_t>& numbers);

  jobs::GroupService* const groups_;
  jobs::StoreGroupMemory* const memory_;
  Send send_;
  uint64_t next_number_ = kGroupNumber;
  size_t asked_buffers_ = 0;
  std::map<uint64_t, std::shared_ptr<Buffer>> buffers_;
  // A call whose input the client copies; at most one for each buffer in use. The call needs the
  // rest also when this member has its answer: it leaves, and is listed until the call has ended.
  struct Filling {
    std::string job;
    std::string role;
    std::shared_ptr<jobs::ByteRanges> there;
  };
  std::map<uint64_t, Filling> filling_;  // by request
  // Questions for kept results, or progress, that have no answer yet.
  struct Question {
    std::string job;
    std::string role;
    int rank = 0;
    uint64_t life = 0;
  };
  std::map<uint64_t, Question> questions_;  // by request
  struct Result {
    std::shared_ptr<MemoryBlock> block;
    std::shared_ptr<const jobs::GroupMemory> memory;
  };
  std::map<uint64_t, Result> results_;
  // Results of calls under way, of which the client knows parts.
  struct Shown {
    uint64_t pin = 0;
    absl::string_view result;
    std::shared_ptr<const jobs::GroupMemory> memory;
  };
  std::map<uint64_t, Shown> shown_;  // by request
  // Expired when this is gone: callbacks of calls come later.
  std::shared_ptr<ClientGroups*> alive_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_JOBS_CLIENT_GROUPS_H_
