// Message: what nodes send each other, and Node: a process. Values.
#ifndef PS_INTERNAL_MESSAGE_H_
#define PS_INTERNAL_MESSAGE_H_

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "ps/sarray.h"

namespace ps {

enum DataType {
  CHAR,
  INT8,
  INT16,
  INT32,
  INT64,
  UINT8,
  UINT16,
  UINT32,
  UINT64,
  FLOAT,
  DOUBLE,
  OTHER
};

static const char* const DataTypeName[] = {"CHAR",   "INT8",  "INT16",  "INT32",
                                           "INT64",  "UINT8", "UINT16", "UINT32",
                                           "UINT64", "FLOAT", "DOUBLE", "OTHER"};

template <typename V, typename W>
inline bool SameType() {
  return std::is_same<typename std::remove_cv<V>::type, W>::value;
}

template <typename V>
inline DataType GetDataType() {
  return SameType<V, int8_t>()     ? INT8
         : SameType<V, int16_t>()  ? INT16
         : SameType<V, int32_t>()  ? INT32
         : SameType<V, int64_t>()  ? INT64
         : SameType<V, uint8_t>()  ? UINT8
         : SameType<V, uint16_t>() ? UINT16
         : SameType<V, uint32_t>() ? UINT32
         : SameType<V, uint64_t>() ? UINT64
         : SameType<V, float>()    ? FLOAT
         : SameType<V, double>()   ? DOUBLE
                                   : OTHER;
}

struct Node {
  static const int kEmpty;
  enum Role { SERVER, WORKER, SCHEDULER };

  Node() : role(SCHEDULER), id(kEmpty), customer_id(0), port(kEmpty) {}
  std::string DebugString() const;
  std::string ShortDebugString() const;

  Role role;
  int id;
  int customer_id;
  std::string hostname;
  int port;
  // Always false, as Postoffice::is_recovery.
  bool is_recovery = false;
  int aux_id = -1;
};

struct Control {
  enum Command { EMPTY, TERMINATE, ADD_NODE, BARRIER, ACK, HEARTBEAT };

  bool empty() const { return cmd == EMPTY; }
  std::string DebugString() const;

  Command cmd = EMPTY;
  std::vector<Node> node;
  int barrier_group = 0;
  uint64_t msg_sig = 0;
};

struct Meta {
  static const int kEmpty;

  Meta()
      : head(kEmpty),
        app_id(kEmpty),
        customer_id(kEmpty),
        timestamp(kEmpty),
        sender(kEmpty),
        recver(kEmpty) {}
  std::string DebugString() const;

  int head;
  int app_id;
  int customer_id;
  int timestamp;
  int sender;
  int recver;
  bool request = false;
  bool push = false;
  bool pull = false;
  bool simple_app = false;
  std::string body;
  std::vector<DataType> data_type;
  Control control;
  // Of all arrays together, in bytes.
  int data_size = 0;
  int priority = 0;
  // The first key; address and length of the values of a push, or of those that a pull fills.
  uint64_t key = 0;
  uint64_t addr = 0;
  int val_len = 0;
  int option = 0;
};

struct Message {
  template <typename V>
  void AddData(const SArray<V>& values) {
    CHECK_EQ(data.size(), meta.data_type.size());
    meta.data_type.push_back(GetDataType<V>());
    const SArray<char> bytes(values);
    // As far as an int goes.
    const size_t room = static_cast<size_t>(std::numeric_limits<int>::max() - meta.data_size);
    meta.data_size += static_cast<int>(bytes.size() < room ? bytes.size() : room);
    data.push_back(bytes);
  }
  std::string DebugString() const;

  Meta meta;
  std::vector<SArray<char>> data;
};

}  // namespace ps

#endif  // PS_INTERNAL_MESSAGE_H_
