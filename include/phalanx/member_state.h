// MemberState: whether a task of a job is there. A value.
#ifndef PHALANX_MEMBER_STATE_H_
#define PHALANX_MEMBER_STATE_H_

#include <cstdint>

namespace phalanx {

enum class MemberState : uint8_t {
  kAbsent,  // no task with this rank has joined so far
  kLive,
  kDied,  // its client ended, its node is gone or was fenced
  kLeft,  // it left the job
};

}  // namespace phalanx

#endif  // PHALANX_MEMBER_STATE_H_
