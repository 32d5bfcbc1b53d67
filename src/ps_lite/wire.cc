#include "src/ps_lite/wire.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace phalanx::ps_lite {
namespace {

constexpr uint32_t kMagic = 0x50534c31;
constexpr size_t kAlignment = 16;
// No host has as much memory.
constexpr uint64_t kMostArrayBytes = uint64_t{1} << 44;

enum Flag : uint8_t { kRequest = 1, kPush = 2, kPull = 4, kSimpleApp = 8 };

struct Fixed {
  uint32_t magic;
  uint8_t flags;
  uint8_t command;
  uint16_t arrays;
  int32_t group;
  int32_t head;
  int32_t app;
  int32_t customer;
  int32_t timestamp;
  int32_t sender;
  int32_t priority;
  int32_t option;
  int32_t val_len;
  int32_t unused;
  uint64_t key;
  uint64_t addr;
};
static_assert(sizeof(Fixed) == 64);

size_t Aligned(size_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

Fixed FixedOf(const ::ps::Meta& meta) {
  Fixed fixed = {};
  fixed.magic = kMagic;
  fixed.flags = static_cast<uint8_t>((meta.request ? kRequest : 0) | (meta.push ? kPush : 0) |
                                     (meta.pull ? kPull : 0) | (meta.simple_app ? kSimpleApp : 0));
  fixed.command = static_cast<uint8_t>(meta.control.cmd);
  fixed.group = meta.control.barrier_group;
  fixed.head = meta.head;
  fixed.app = meta.app_id;
  fixed.customer = meta.customer_id;
  fixed.timestamp = meta.timestamp;
  fixed.sender = meta.sender;
  fixed.priority = meta.priority;
  fixed.option = meta.option;
  fixed.val_len = meta.val_len;
  fixed.key = meta.key;
  fixed.addr = meta.addr;
  return fixed;
}

void ReadFixed(const Fixed& fixed, ::ps::Meta* meta) {
  meta->request = (fixed.flags & kRequest) != 0;
  meta->push = (fixed.flags & kPush) != 0;
  meta->pull = (fixed.flags & kPull) != 0;
  meta->simple_app = (fixed.flags & kSimpleApp) != 0;
  meta->control.cmd = static_cast<::ps::Control::Command>(fixed.command);
  meta->control.barrier_group = fixed.group;
  meta->head = fixed.head;
  meta->app_id = fixed.app;
  meta->customer_id = fixed.customer;
  meta->timestamp = fixed.timestamp;
  meta->sender = fixed.sender;
  meta->priority = fixed.priority;
  meta->option = fixed.option;
  meta->val_len = fixed.val_len;
  meta->key = fixed.key;
  meta->addr = fixed.addr;
}

}  // namespace

std::string WrongWith(const ::ps::Message& message) {
  if (message.data.size() >= kMostArrays) {
    return "a message has " + std::to_string(message.data.size()) + " arrays: at most " +
           std::to_string(kMostArrays - 1) + " are sent";
  }
  return "";
}

Encoded Encode(const ::ps::Message& message) {
  std::vector<std::string_view> arrays = {message.meta.body};
  for (const auto& each : message.data) arrays.emplace_back(each.data(), each.size());
  Fixed fixed = FixedOf(message.meta);
  fixed.arrays = static_cast<uint16_t>(arrays.size());
  size_t size = sizeof(Fixed) + arrays.size() * sizeof(uint64_t);
  Encoded encoded;
  std::vector<uint64_t> words;
  std::vector<size_t> places;  // of arrays in the header, 0: in pieces
  for (size_t i = 0; i < arrays.size(); ++i) {
    const size_t place = Aligned(size);
    const bool small =
        arrays[i].size() <= kSmallArrayBytes && place + arrays[i].size() <= kMostHeaderBytes;
    // A program can have filled the arrays without their types.
    const std::vector<::ps::DataType>& types = message.meta.data_type;
    const bool typed = i > 0 && i <= types.size();
    const uint64_t type = i == 0 ? 0 : static_cast<uint64_t>(typed ? types[i - 1] : ::ps::OTHER);
    words.push_back(uint64_t{arrays[i].size()} << 8 | type << 1 | (small ? 0 : 1));
    places.push_back(small ? place : 0);
    if (small) {
      size = place + arrays[i].size();
    } else {
      encoded.in_pieces.push_back(arrays[i]);
    }
  }
  encoded.header.resize(size);
  char* const to = encoded.header.data();
  std::memcpy(to, &fixed, sizeof(fixed));
  std::memcpy(to + sizeof(fixed), words.data(), words.size() * sizeof(uint64_t));
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (places[i] != 0 && !arrays[i].empty())
      std::memcpy(to + places[i], arrays[i].data(), arrays[i].size());
  }
  return encoded;
}

std::string Assembly::Take(const char* bytes, size_t size,
                           const std::shared_ptr<const void>& owner) {
  return begun_ ? TakePiece(bytes, size, owner) : TakeHeader(bytes, size, owner);
}

std::string Assembly::TakeHeader(const char* bytes, size_t size,
                                 const std::shared_ptr<const void>& owner) {
  Fixed fixed = {};
  if (size >= sizeof(fixed)) std::memcpy(&fixed, bytes, sizeof(fixed));
  size_t at = sizeof(Fixed) + fixed.arrays * sizeof(uint64_t);
  if (fixed.magic != kMagic || fixed.arrays == 0 || fixed.arrays > kMostArrays || at > size ||
      fixed.command > ::ps::Control::HEARTBEAT) {
    return "no header of a message";
  }
  message_ = ::ps::Message();
  arrays_.clear();
  ReadFixed(fixed, &message_.meta);
  for (size_t i = 0; i < fixed.arrays; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + sizeof(Fixed) + i * sizeof(word), sizeof(word));
    const uint64_t type = word >> 1 & 0x7f;
    Array array = {word >> 8, 0, {}};
    if (type > ::ps::OTHER || array.size > kMostArrayBytes) return "an array of no type or size";
    if (i > 0) message_.meta.data_type.push_back(static_cast<::ps::DataType>(type));
    if ((word & 1) == 0) {
      at = Aligned(at);
      if (at > size || array.size > size - at) return "a header that ends within an array";
      // The message's memory is the receiver's alone.
      char* const begin = const_cast<char*>(bytes + at);
      array.bytes.reset(begin, array.size, [owner](char*) {});
      array.filled = array.size;
      at += array.size;
    }
    arrays_.push_back(std::move(array));
  }
  begun_ = true;
  next_ = 0;
  SkipComplete();
  return "";
}

std::string Assembly::TakePiece(const char* bytes, size_t size,
                                const std::shared_ptr<const void>& owner) {
  Array& array = arrays_[next_];
  if (size == 0 || size > array.size - array.filled)
    return "a piece that is larger than what is missing";
  if (size == array.size) {
    array.bytes.reset(const_cast<char*>(bytes), size, [owner](char*) {});
  } else {
    if (array.filled == 0) {
      // Not initialised: all of it is written.
      char* const memory = new (std::nothrow) char[array.size];
      if (memory == nullptr) return "an array for which there is no memory";
      array.bytes.reset(memory, array.size, [](char* each) { delete[] each; });
    }
    std::memcpy(array.bytes.data() + array.filled, bytes, size);
  }
  array.filled += size;
  SkipComplete();
  return "";
}

void Assembly::SkipComplete() {
  while (next_ < arrays_.size() && arrays_[next_].filled == arrays_[next_].size) ++next_;
}

::ps::Message Assembly::Release() {
  begun_ = false;
  message_.meta.body.assign(arrays_[0].bytes.data(), arrays_[0].bytes.size());
  size_t total = 0;
  for (size_t i = 1; i < arrays_.size(); ++i) {
    total += arrays_[i].bytes.size();
    message_.data.push_back(std::move(arrays_[i].bytes));
  }
  message_.meta.data_size = static_cast<int>(std::min<size_t>(total, INT32_MAX));
  arrays_.clear();
  return std::move(message_);
}

::ps::Message CopyOf(const ::ps::Message& message) {
  ::ps::Message copy = message;
  for (auto& array : copy.data) {
    const ::ps::SArray<char> view = array;
    array.CopyFrom(view.data(), view.size());
  }
  return copy;
}

}  // namespace phalanx::ps_lite
