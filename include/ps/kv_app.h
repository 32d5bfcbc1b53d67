// KVWorker pushes values of keys to the servers and pulls them, each by Wait or a callback.
// KVServer answers with a function of the program.
//
//   worker: kv.Wait(kv.Push({1, 3}, {1.1, 3.1}));  kv.Wait(kv.Pull({1, 3}, &values));
//   server: server->set_request_handle(ps::KVServerDefaultHandle<float>());
//
// Keys increase strictly. Each has `values / keys` values, or those that `lens` says. Server r has
// the keys of range r (Postoffice::GetServerKeyRanges). Errors are thrown as dmlc::Error, in the
// thread that calls or waits.
#ifndef PS_KV_APP_H_
#define PS_KV_APP_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ps/base.h"
#include "ps/simple_app.h"

namespace ps {

template <typename Val>
struct KVPairs {
  SArray<Key> keys;
  SArray<Val> vals;
  // Empty, or how many values each key has.
  SArray<int> lens;
  int priority = 0;
};

// Any thread.
template <typename Val>
class KVWorker : public SimpleApp {
 public:
  using SimpleApp::obj_;
  // Called in the worker's own thread when the values are in place; Wait and other calls work in
  // it.
  using Callback = std::function<void()>;
  using SlicedKVs = std::vector<std::pair<bool, KVPairs<Val>>>;
  // Sets in `sliced` what goes to each server, and whether anything does. All keys go somewhere,
  // and those of a server before those of the next one.
  using Slicer = std::function<void(const KVPairs<Val>& send, const std::vector<Range>& ranges,
                                    SlicedKVs* sliced)>;

  explicit KVWorker(int app_id, int customer_id = 0) : SimpleApp() {
    slicer_ = Slice;
    obj_ = new Customer(app_id, customer_id, [this](const Message& msg) { Process(msg); });
  }
  ~KVWorker() override {
    // Its thread uses what is destroyed next.
    delete obj_;
    obj_ = nullptr;
  }

  // Returns a timestamp for Wait. Copies its arguments.
  int Push(const std::vector<Key>& keys, const std::vector<Val>& vals,
           const std::vector<int>& lens = {}, int cmd = 0, const Callback& cb = nullptr,
           int priority = 0) {
    return ZPush(View(keys), View(vals), View(lens), cmd, cb, priority);
  }
  // `vals` and `lens` are written until Wait returns. Empty ones get the right size.
  int Pull(const std::vector<Key>& keys, std::vector<Val>* vals, std::vector<int>* lens = nullptr,
           int cmd = 0, const Callback& cb = nullptr, int priority = 0) {
    CHECK(vals != nullptr);
    return StartPull(SArray<Key>(keys), KVPairs<Val>(), false, Into(vals, lens), vals->size(), cmd,
                     cb, priority);
  }
  // What is pulled is as after the push.
  int PushPull(const std::vector<Key>& keys, const std::vector<Val>& vals, std::vector<Val>* outs,
               std::vector<int>* lens = nullptr, int cmd = 0, const Callback& cb = nullptr,
               int priority = 0) {
    CHECK(outs != nullptr);
    if (!outs->empty()) CHECK_EQ(vals.size(), outs->size());
    KVPairs<Val> pushed;
    pushed.vals = View(vals);
    if (lens != nullptr) pushed.lens = View(*lens);
    return StartPull(SArray<Key>(keys), pushed, true, Into(outs, lens), outs->size(), cmd, cb,
                     priority);
  }

  // The same without copies: the arrays stay unchanged until Wait returns.
  int ZPush(const SArray<Key>& keys, const SArray<Val>& vals, const SArray<int>& lens = {},
            int cmd = 0, const Callback& cb = nullptr, int priority = 0) {
    KVPairs<Val> pushed;
    pushed.keys = keys;
    pushed.vals = vals;
    pushed.lens = lens;
    pushed.priority = priority;
    const int timestamp = obj_->NewRequest(kServerGroup);
    if (cb) SetEnd(timestamp, [cb](Pulled*) { cb(); });
    Send(timestamp, true, false, cmd, pushed, 0);
    return timestamp;
  }
  // An array that is not empty is filled where it is, also if `vals` itself is gone by then.
  int ZPull(const SArray<Key>& keys, SArray<Val>* vals, SArray<int>* lens = nullptr, int cmd = 0,
            const Callback& cb = nullptr, int priority = 0) {
    CHECK(vals != nullptr);
    return StartPull(keys, KVPairs<Val>(), false, Into(vals, lens), vals->size(), cmd, cb,
                     priority);
  }
  int ZPushPull(const SArray<Key>& keys, const SArray<Val>& vals, SArray<Val>* outs,
                SArray<int>* lens = nullptr, int cmd = 0, const Callback& cb = nullptr,
                int priority = 0) {
    CHECK(outs != nullptr);
    KVPairs<Val> pushed;
    pushed.vals = vals;
    if (lens != nullptr) pushed.lens = *lens;
    return StartPull(keys, pushed, true, Into(outs, lens), outs->size(), cmd, cb, priority);
  }

  void Wait(int timestamp) override { obj_->WaitRequest(timestamp); }

  void set_slicer(const Slicer& slicer) {
    CHECK(slicer) << "invalid slicer";
    slicer_ = slicer;
  }

 protected:
  void Process(const Message& msg) override;

 private:
  // What the servers have answered so far.
  using Pulled = std::vector<KVPairs<Val>>;
  using End = std::function<void(Pulled* pulled)>;
  struct Asked {
    Pulled pulled;
    End end;  // at the last answer
  };

  // Valid while the vector is: what is sent is copied before a call returns.
  template <typename T>
  static SArray<T> View(const std::vector<T>& from) {
    return SArray<T>(const_cast<T*>(from.data()), from.size());
  }
  static void Slice(const KVPairs<Val>& send, const std::vector<Range>& ranges, SlicedKVs* sliced);

  // The functions below return one that puts an answer into arrays of the program.
  using Fill = std::function<void(const SArray<Key>& keys, Pulled* pulled)>;
  static Fill Into(std::vector<Val>* vals, std::vector<int>* lens);
  static Fill Into(SArray<Val>* vals, SArray<int>* lens);
  template <typename C, typename D>
  static void FillIn(const SArray<Key>& keys, Pulled* pulled, C* vals, D* lens);
  // Checks that each key was answered, and sorts.
  static size_t CheckPulled(const SArray<Key>& keys, Pulled* pulled);

  int StartPull(const SArray<Key>& keys, KVPairs<Val> pushed, bool push, const Fill& fill,
                size_t room, int cmd, const Callback& cb, int priority) {
    pushed.keys = keys;
    pushed.priority = priority;
    const int timestamp = obj_->NewRequest(kServerGroup);
    SetEnd(timestamp, [keys, fill, cb](Pulled* pulled) {
      fill(keys, pulled);
      if (cb) cb();
    });
    Send(timestamp, push, true, cmd, pushed, room);
    return timestamp;
  }
  void SetEnd(int timestamp, const End& end) {
    std::lock_guard<std::mutex> lock(mu_);
    requests_[timestamp].end = end;
  }
  void RunEnd(int timestamp);
  // `room`: how many values a pull can fill, 0 if any number.
  void Send(int timestamp, bool push, bool pull, int cmd, const KVPairs<Val>& kvs, size_t room);
  void SendTo(int server, const Meta& meta, const KVPairs<Val>& part, size_t room);

  std::mutex mu_;
  std::unordered_map<int, Asked> requests_;  // those with an `end`
  Slicer slicer_;
};

struct KVMeta {
  int cmd = 0;
  bool push = false;
  bool pull = false;
  int sender = 0;
  int timestamp = 0;
  int customer_id = 0;
  Key key = 0;  // the first one
  uint64_t addr = 0;
  // Of a push: how many values; of a pull: for how many the worker has room, 0 if that is any
  // number.
  int val_len = 0;
  int option = 0;
};

template <typename Val>
struct KVServerDefaultHandle;

// Requests are handled in a thread of its own, one after the other. With a KVServerDefaultHandle at
// all servers they are handled by the library instead, whose values outlive a server that dies, if
// these are of int32_t, int64_t, float or double.
template <typename Val>
class KVServer : public SimpleApp {
 public:
  // Answers the request by Response, then or later. The arrays are valid as long as it keeps them.
  using ReqHandle =
      std::function<void(const KVMeta& req_meta, const KVPairs<Val>& req_data, KVServer* server)>;

  // Before or after Start. The id is that of the KVWorkers that use it.
  explicit KVServer(int app_id) : SimpleApp() {
    obj_ = new Customer(app_id, app_id, [this](const Message& msg) { Process(msg); });
  }
  ~KVServer() override {
    delete obj_;
    obj_ = nullptr;
  }

  // Requests that come before are kept for a minute.
  void set_request_handle(const ReqHandle& request_handle) {
    CHECK(request_handle) << "invalid request handle";
    {
      std::lock_guard<std::mutex> lock(mu_);
      request_handle_ = request_handle;
      cond_.notify_all();
    }
    obj_->SetTable(TableOf(request_handle));
  }
  // Any thread. The arrays can be changed afterwards.
  void Response(const KVMeta& req, const KVPairs<Val>& res = KVPairs<Val>());
  using SimpleApp::Response;

 protected:
  void Process(const Message& msg) override;

 private:
  // The type of values that a table can have instead of the handle; OTHER: it cannot.
  static DataType TableOf(const ReqHandle& handle) {
    const DataType type = GetDataType<Val>();
    const bool known = type == INT32 || type == INT64 || type == FLOAT || type == DOUBLE;
    if (!known || GetDataType<Key>() != UINT64) return OTHER;
#ifdef __GXX_RTTI
    const auto* const added = handle.template target<KVServerDefaultHandle<Val>>();
    // It can have values from elsewhere.
    return added != nullptr && added->store.empty() ? type : OTHER;
#else
    // What is in a function cannot be seen.
    return OTHER;
#endif
  }

  std::mutex mu_;
  std::condition_variable cond_;
  ReqHandle request_handle_;
};

// Adds what is pushed; a value that was not pushed is 0. One value for each key.
template <typename Val>
struct KVServerDefaultHandle {
  void operator()(const KVMeta& req_meta, const KVPairs<Val>& req_data, KVServer<Val>* server) {
    const size_t n = req_data.keys.size();
    KVPairs<Val> response;
    if (req_meta.push) {
      CHECK_EQ(n, req_data.vals.size())
          << "(" << n << " keys with " << req_data.vals.size() << " values)";
    }
    if (req_meta.pull) {
      response.keys = req_data.keys;
      response.vals.resize(n);
    }
    for (size_t i = 0; i < n; ++i) {
      Val& value = store[req_data.keys[i]];
      if (req_meta.push) value += req_data.vals[i];
      if (req_meta.pull) response.vals[i] = value;
    }
    server->Response(req_meta, response);
  }

  std::unordered_map<Key, Val> store;
};

// ---------------------------------------------------------------------------- KVWorker

template <typename Val>
void KVWorker<Val>::Slice(const KVPairs<Val>& send, const std::vector<Range>& ranges,
                          SlicedKVs* sliced) {
  const size_t n = send.keys.size();
  const size_t width = n == 0 || !send.lens.empty() ? 0 : send.vals.size() / n;
  sliced->resize(ranges.size());
  size_t begin = 0, value = 0;
  for (size_t r = 0; r < ranges.size(); ++r) {
    // The last range has its end.
    const Key* const end =
        r + 1 == ranges.size()
            ? send.keys.end()
            : std::lower_bound(send.keys.begin() + begin, send.keys.end(), ranges[r].end());
    const size_t next = static_cast<size_t>(end - send.keys.begin());
    (*sliced)[r].first = next > begin;
    if (next == begin) continue;
    KVPairs<Val>& part = (*sliced)[r].second;
    part.priority = send.priority;
    part.keys = send.keys.segment(begin, next);
    size_t values = width * (next - begin);
    if (!send.lens.empty()) {
      part.lens = send.lens.segment(begin, next);
      if (!send.vals.empty()) {
        for (const int length : part.lens) values += static_cast<size_t>(length);
      }
    }
    part.vals = send.vals.segment(value, value + values);
    value += values;
    begin = next;
  }
}

template <typename Val>
void KVWorker<Val>::Send(int timestamp, bool push, bool pull, int cmd, const KVPairs<Val>& kvs,
                         size_t room) {
  const size_t n = kvs.keys.size();
  for (size_t i = 1; i < n; ++i) {
    CHECK_LT(kvs.keys[i - 1], kvs.keys[i])
        << "(keys increase strictly: key " << i << " of " << n << ")";
  }
  if (push && kvs.lens.empty()) {
    CHECK_EQ(n == 0 ? kvs.vals.size() : kvs.vals.size() % n, 0u)
        << "(" << n << " keys with " << kvs.vals.size() << " values)";
  } else if (!kvs.lens.empty()) {
    CHECK_EQ(kvs.lens.size(), n);
    size_t values = 0;
    for (const int length : kvs.lens) {
      CHECK_GE(length, 0);
      values += static_cast<size_t>(length);
    }
    if (push) CHECK_EQ(values, kvs.vals.size()) << "(the lengths of " << n << " keys)";
  }
  const std::vector<Range>& ranges = Postoffice::Get()->GetServerKeyRanges();
  CHECK(!ranges.empty()) << "the job has no servers (DMLC_NUM_SERVER=0)";
  SlicedKVs sliced;
  slicer_(kvs, ranges, &sliced);
  CHECK_EQ(sliced.size(), ranges.size()) << "(the slicer has to make a part for each server)";
  size_t keys = 0, parts = 0;
  for (const auto& part : sliced) {
    if (!part.first) continue;
    keys += part.second.keys.size();
    ++parts;
  }
  CHECK_EQ(keys, n) << "(the slicer has dropped keys, or doubled some)";
  // Nothing is sent: this is the end. Otherwise the last answer is.
  if (parts == 0) RunEnd(timestamp);
  obj_->AddResponse(timestamp, static_cast<int>(sliced.size() - parts));
  Meta meta;
  meta.app_id = obj_->app_id();
  meta.customer_id = obj_->customer_id();
  meta.timestamp = timestamp;
  meta.request = true;
  meta.push = push;
  meta.pull = pull;
  meta.head = cmd;
  for (size_t r = 0; r < sliced.size(); ++r) {
    const KVPairs<Val>& part = sliced[r].second;
    if (sliced[r].first)
      SendTo(static_cast<int>(r), meta, part, n == 0 ? 0 : room / n * part.keys.size());
  }
}

template <typename Val>
void KVWorker<Val>::SendTo(int server, const Meta& meta, const KVPairs<Val>& part, size_t room) {
  Message msg;
  msg.meta = meta;
  msg.meta.recver = Postoffice::ServerRankToID(server);
  msg.meta.priority = part.priority;
  msg.meta.addr = reinterpret_cast<uint64_t>(part.vals.data());
  msg.meta.val_len = static_cast<int>(meta.push ? part.vals.size() : room);
  if (!part.keys.empty()) {
    msg.meta.key = part.keys[0];
    msg.AddData(part.keys);
    msg.AddData(meta.push ? part.vals : SArray<Val>());
    if (!part.lens.empty()) msg.AddData(part.lens);
  }
  Postoffice::Get()->van()->Send(msg);
}

template <typename Val>
void KVWorker<Val>::Process(const Message& msg) {
  if (msg.meta.simple_app) {
    SimpleApp::Process(msg);
    return;
  }
  const int timestamp = msg.meta.timestamp;
  if (!msg.data.empty()) {
    CHECK_GE(msg.data.size(), 2u);
    KVPairs<Val> part;
    part.keys = msg.data[0];
    part.vals = msg.data[1];
    if (msg.data.size() > 2) part.lens = msg.data[2];
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = requests_.find(timestamp);
    if (found != requests_.end()) found->second.pulled.push_back(part);
  }
  if (obj_->NumResponse(timestamp) == Postoffice::Get()->num_servers() - 1) RunEnd(timestamp);
}

template <typename Val>
void KVWorker<Val>::RunEnd(int timestamp) {
  Asked request;
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = requests_.find(timestamp);
    if (found == requests_.end()) return;
    request = std::move(found->second);
    requests_.erase(found);
  }
  if (request.end) request.end(&request.pulled);
}

template <typename Val>
typename KVWorker<Val>::Fill KVWorker<Val>::Into(std::vector<Val>* vals, std::vector<int>* lens) {
  return
      [vals, lens](const SArray<Key>& keys, Pulled* pulled) { FillIn(keys, pulled, vals, lens); };
}

template <typename Val>
typename KVWorker<Val>::Fill KVWorker<Val>::Into(SArray<Val>* vals, SArray<int>* lens) {
  // Views: programs let go of the arrays themselves before the answer has come.
  SArray<Val> values = *vals;
  SArray<int> lengths;
  if (lens != nullptr) lengths = *lens;
  return [vals, lens, values, lengths](const SArray<Key>& keys, Pulled* pulled) mutable {
    SArray<int>* const filled = lengths.empty() ? lens : &lengths;
    if (!values.empty()) {
      FillIn(keys, pulled, &values, filled);
    } else if (pulled->size() == 1 && filled == nullptr) {
      CheckPulled(keys, pulled);
      *vals = pulled->front().vals;
    } else {
      FillIn(keys, pulled, vals, filled);
    }
  };
}

template <typename Val>
size_t KVWorker<Val>::CheckPulled(const SArray<Key>& keys, Pulled* pulled) {
  size_t answered = 0, values = 0;
  for (const KVPairs<Val>& part : *pulled) {
    answered += part.keys.size();
    values += part.vals.size();
    CHECK(part.lens.empty() || part.lens.size() == part.keys.size())
        << "a server has answered " << part.keys.size() << " keys with " << part.lens.size()
        << " lengths";
  }
  CHECK_EQ(answered, keys.size()) << "the servers have answered " << answered << " of "
                                  << keys.size() << " keys";
  std::sort(pulled->begin(), pulled->end(), [](const KVPairs<Val>& a, const KVPairs<Val>& b) {
    return !b.keys.empty() && (a.keys.empty() || a.keys.front() < b.keys.front());
  });
  return values;
}

template <typename Val>
template <typename C, typename D>
void KVWorker<Val>::FillIn(const SArray<Key>& keys, Pulled* pulled, C* vals, D* lens) {
  const size_t values = CheckPulled(keys, pulled);
  if (vals->empty()) vals->resize(values);
  CHECK_GE(vals->size(), values) << "the servers have answered with " << values << " values";
  Val* to = vals->data();
  for (const KVPairs<Val>& part : *pulled) {
    if (part.vals.empty()) continue;
    // The server can have answered with the memory to which it goes, if it is this process.
    std::memmove(to, part.vals.data(), part.vals.size() * sizeof(Val));
    to += part.vals.size();
  }
  if (lens == nullptr) return;
  if (lens->empty()) lens->resize(keys.size());
  CHECK_EQ(lens->size(), keys.size());
  int* length = lens->data();
  for (const KVPairs<Val>& part : *pulled) {
    const size_t n = part.keys.size();
    for (size_t i = 0; i < n; ++i) {
      *length++ = part.lens.empty() ? static_cast<int>(part.vals.size() / n) : part.lens[i];
    }
  }
}

// ---------------------------------------------------------------------------- KVServer

template <typename Val>
void KVServer<Val>::Process(const Message& msg) {
  if (msg.meta.simple_app) {
    SimpleApp::Process(msg);
    return;
  }
  KVMeta meta;
  meta.cmd = msg.meta.head;
  meta.push = msg.meta.push;
  meta.pull = msg.meta.pull;
  meta.sender = msg.meta.sender;
  meta.timestamp = msg.meta.timestamp;
  meta.customer_id = msg.meta.customer_id;
  meta.key = static_cast<Key>(msg.meta.key);
  meta.addr = msg.meta.addr;
  meta.val_len = msg.meta.val_len;
  meta.option = msg.meta.option;
  KVPairs<Val> data;
  data.priority = msg.meta.priority;
  if (!msg.data.empty()) {
    CHECK_GE(msg.data.size(), 2u);
    data.keys = msg.data[0];
    data.vals = msg.data[1];
    if (msg.data.size() > 2) data.lens = msg.data[2];
    CHECK(data.lens.empty() || data.lens.size() == data.keys.size());
  }
  std::unique_lock<std::mutex> lock(mu_);
  cond_.wait_for(lock, std::chrono::minutes(1),
                 [this] { return static_cast<bool>(request_handle_); });
  CHECK(request_handle_) << "no set_request_handle of KVServer " << obj_->app_id()
                         << " within a minute of a request";
  const ReqHandle* const handle = &request_handle_;
  lock.unlock();
  (*handle)(meta, data, this);
}

template <typename Val>
void KVServer<Val>::Response(const KVMeta& req, const KVPairs<Val>& res) {
  Message msg;
  msg.meta.app_id = obj_->app_id();
  msg.meta.customer_id = req.customer_id;
  msg.meta.request = false;
  msg.meta.push = req.push;
  msg.meta.pull = req.pull;
  msg.meta.head = req.cmd;
  msg.meta.timestamp = req.timestamp;
  msg.meta.recver = req.sender;
  msg.meta.priority = res.priority;
  msg.meta.key = req.key;
  msg.meta.addr = req.addr;
  msg.meta.val_len = req.val_len;
  msg.meta.option = req.option;
  if (!res.keys.empty()) {
    msg.AddData(res.keys);
    msg.AddData(res.vals);
    if (!res.lens.empty()) msg.AddData(res.lens);
  }
  Postoffice::Get()->van()->Send(msg);
}

}  // namespace ps

#endif  // PS_KV_APP_H_
