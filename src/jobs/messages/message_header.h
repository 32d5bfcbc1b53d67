// The headers of messages between members of jobs, as they travel over the links between nodes.
//
// docs/jobs.md describes their meaning. A header is 73 bytes, little-endian. Decoding trusts no
// input.
//
// Values and pure functions; any thread.
#ifndef PHALANX_JOBS_MESSAGES_MESSAGE_HEADER_H_
#define PHALANX_JOBS_MESSAGES_MESSAGE_HEADER_H_

#include <compare>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace phalanx::jobs {

// The greatest message.
inline constexpr size_t kMaxMessageBytes = size_t{1} << 20;

// One role of a job, by a hash of both names. Of 2^32 groups two have one hash with a chance of
// 2^-65.
struct GroupId {
  uint64_t high = 0;
  uint64_t low = 0;

  friend auto operator<=>(const GroupId&, const GroupId&) = default;
};
GroupId GroupIdOf(absl::string_view job, absl::string_view role);

// One life of a member.
struct LifeKey {
  GroupId group;
  uint32_t rank = 0;
  uint64_t life = 0;

  friend auto operator<=>(const LifeKey&, const LifeKey&) = default;
  std::string ToString() const { return absl::StrFormat("rank %d, life %d", rank, life); }
};

enum class MessageKind : uint8_t {
  kMessage = 1,  // the payload is for `to`
  kCredit = 2,   // `from` has taken messages of `to`
  kRefused = 3,  // `from` is not at this node, or not in this life
};

struct MessageHeader {
  MessageKind kind = MessageKind::kMessage;
  LifeKey from;
  LifeKey to;
  // The sender's number of the sequence of messages from one life to another.
  uint64_t stream = 0;
  // kMessage: the number of the message in the stream, from 0. kCredit: the cost of all messages of
  // the stream that were taken.
  uint64_t count = 0;

  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};

std::string Encode(const MessageHeader& header);
// Returns InvalidArgument for an unknown kind, a number that the kind does not have, or another
// length.
absl::StatusOr<MessageHeader> DecodeMessageHeader(absl::string_view bytes);

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_MESSAGES_MESSAGE_HEADER_H_
