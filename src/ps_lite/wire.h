// How a message of ps-lite travels in messages between members of a job (at most 1 MiB each): a
// header, in which small arrays are as well, then the bytes of each large array in pieces. Messages
// from one member to another keep their order, so pieces need no header.
//
//   header (numbers as they are in memory: all hosts of a job have the same):
//     u32 magic  u8 flags  u8 command  u16 arrays  i32 group  i32 head  i32 app  i32 customer
//     i32 timestamp  i32 sender  i32 priority  i32 option  i32 val_len  u64 key  u64 addr
//     for each array: u64 bytes << 8 | type << 1 | (in pieces)
//     each small array, at a multiple of 16 from the header's begin
//   Array 0 is the text of the message, without a type; those of its data follow.
#ifndef PHALANX_PS_LITE_WIRE_H_
#define PHALANX_PS_LITE_WIRE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ps/internal/message.h"

namespace phalanx::ps_lite {

// The greatest message between members, and so the greatest piece.
inline constexpr size_t kPieceBytes = size_t{1} << 20;
// Arrays up to this size are in the header, as long as that is not larger than kMostHeaderBytes.
inline constexpr size_t kSmallArrayBytes = size_t{16} << 10;
inline constexpr size_t kMostHeaderBytes = size_t{64} << 10;
inline constexpr size_t kMostArrays = 1024;

// The header, and views of the arrays that follow it.
struct Encoded {
  std::string header;
  std::vector<std::string_view> in_pieces;
};
// Returns why the message cannot be sent.
std::string WrongWith(const ::ps::Message& message);
// REQUIRES: WrongWith returns an empty text. An array without a type is sent as one of ps::OTHER.
Encoded Encode(const ::ps::Message& message);

// Puts the messages of one sender together. One thread.
class Assembly {
 public:
  // Takes a message between members; `owner` keeps its bytes, which are aligned to 16. Returns what
  // is wrong with it. Then no more of this sender can be taken.
  std::string Take(const char* bytes, size_t size, const std::shared_ptr<const void>& owner);
  // Whether there is a whole message, which Release returns.
  bool complete() const { return begun_ && next_ == arrays_.size(); }
  ::ps::Message Release();

 private:
  std::string TakeHeader(const char* bytes, size_t size, const std::shared_ptr<const void>& owner);
  std::string TakePiece(const char* bytes, size_t size, const std::shared_ptr<const void>& owner);
  // Goes on to the next array of which pieces are missing.
  void SkipComplete();

  struct Array {
    uint64_t size;
    uint64_t filled;  // bytes
    ::ps::SArray<char> bytes;
  };
  bool begun_ = false;
  ::ps::Message message_;
  std::vector<Array> arrays_;
  size_t next_ = 0;  // the array whose pieces come next
};

// The message with memory of its own.
::ps::Message CopyOf(const ::ps::Message& message);

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_WIRE_H_
