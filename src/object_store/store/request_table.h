// The clients of a node, and their requests that have not ended: deadlines, and answers that wait
// to be handed out. Pure: the owner sets the timer and calls back.
//
//              ┌─ Attach (streaming Get) ─► kAttached ─┐
//   New ─► kWaiting ◄──── view is void ─────────┘      ├─ Finish ─► kAnswered ─► Erase
//              └───────────────────────────────────────┘        (queued: TakeAnswers)
//
// Invariants, checked by CheckInvariants
//  1. A request that waits for an answer to be handed out is in the queue of answers once.
//  2. A request with `in_deadlines` has one entry among the deadlines.
//  3. A request of a client that is open is in that client's list.
//
// Thread rule: no thread, lock, clock or I/O inside; the control loop only. Owned by the store. A
// Request& is valid until Erase.
#ifndef PHALANX_OBJECT_STORE_STORE_REQUEST_TABLE_H_
#define PHALANX_OBJECT_STORE_STORE_REQUEST_TABLE_H_

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "phalanx/v1/directory.pb.h"
#include "src/object_store/objects/eviction.h"
#include "src/object_store/objects/intrusive_list.h"
#include "src/object_store/objects/object_table.h"
#include "src/object_store/store/store_types.h"

namespace phalanx::object_store {

// A Put, or a Seal that waits for its verdict.
struct PutPart {
  PutOptions options;
  std::string bytes;
  PutDone done;
};

struct CreatePart {
  PutOptions options;
  uint64_t size_bytes = 0;
  CreateDone done;
  absl::Duration timeout = absl::InfiniteDuration();
  // Granted, and not yet handed out.
  WriterId writer = 0;
};

struct GetPart {
  bool streaming = false;
  bool fail_when_lost = false;
  ObjectId near;
  ObjectName name;
  Scope scope;
  GetEvents events;
  // The copy that the Get is answered from, or streams. The pin is the client's.
  Copy* copy = nullptr;
  PinId pin = 0;
  // Handed out in this order: first why the old view is void, then the new view. Until the reader
  // has got the former, a Release of the old view's pin still ends the Get.
  std::optional<absl::Status> why_void;
  PinId void_pin = 0;
  std::optional<absl::StatusOr<View>> view;
};

struct ScratchPart {
  ReserveDone done;
};
struct DeletePart {
  StatusDone done;
  // The nodes that the shard waits for, as it said last.
  std::string waits_for = {};
};
struct KeepPart {
  StatusDone done;
};
struct StatPart {
  std::vector<std::string> nodes;
  StatDone done;
};
struct BroadcastPart {
  BroadcastOptions options;
  NodesDone done;
  bool answered = false;  // by the shard
  bool begun = false;     // the shard has said that it began, and what is sticky now
  v1::StickyMark mark = {};
};
struct EndScopePart {
  Scope scope;
  // By shard: whether it has answered.
  std::vector<bool> ended;
  StatusDone done;
};
struct DrainPart {
  // By shard; nothing before the shard answers.
  std::vector<std::optional<uint32_t>> left;
  std::string message;
  StatusDone done;
};

struct Request {
  enum class Stage : uint8_t {
    kWaiting,   // for a copy, memory, a verdict, a shard
    kAttached,  // a streaming Get with a view of a partial copy
    kAnswered,  // to be handed out and erased
  };
  RequestId id = 0;
  ClientId client = 0;
  ObjectId object;
  Instant deadline = Instant::Infinite();
  Stage stage = Stage::kWaiting;
  bool in_deadlines = false;
  bool in_answers = false;
  Eviction::Ticket ticket = 0;  // of the memory that it waits for
  std::variant<PutPart, CreatePart, GetPart, ScratchPart, DeletePart, KeepPart, StatPart,
               BroadcastPart, EndScopePart, DrainPart>
      part;
  // Calls `done` with the result. Not used by Gets.
  absl::AnyInvocable<void()> answer;

  ListHook<Request> of_client;
  ListHook<Request> of_object;
};

struct Pin {
  Copy* copy = nullptr;
  // The streaming Get whose view this is, until the Get ends; else 0.
  RequestId streaming = 0;
};

struct Client {
  ClientId id = 0;
  absl::flat_hash_map<PinId, Pin> pins;
  std::set<WriterId> writers;
  IntrusiveList<Request, &Request::of_client> requests;
};

class RequestTable {
 public:
  // `post_answers` has the owner take the answers in a later turn. `node_name` is for messages.
  RequestTable(std::string node_name, size_t max_requests_per_client,
               absl::AnyInvocable<void()> post_answers)
      : node_name_(std::move(node_name)),
        max_requests_per_client_(max_requests_per_client),
        post_answers_(std::move(post_answers)) {}

  // For clients, requests, writers, pins, pulls: never used twice.
  uint64_t NewNumber() { return next_number_++; }

  // ---- clients
  ClientId OpenClient();
  // Null if the client is not open.
  Client* FindClient(ClientId id) const;
  // REQUIRES: the client has no requests, pins and writers left.
  void CloseClient(ClientId id) { clients_.erase(id); }
  const std::map<ClientId, std::unique_ptr<Client>>& clients() const { return clients_; }

  // ---- requests
  template <typename Part>
  Request& New(ClientId client, const ObjectId& id, Instant deadline, Part part);
  // Null for a request that has ended.
  Request* Find(RequestId id) const;
  // Null unless the request waits and is of this kind.
  template <typename Part>
  Request* FindWaiting(RequestId id) const;
  // OK, or why the request cannot even begin: InvalidArgument, ResourceExhausted. Without an id: a
  // request that is about no object.
  absl::Status Admit(ClientId client) const;
  absl::Status Admit(ClientId client, const ObjectId& id) const;
  // In order of their numbers, those that wait and that `chosen` accepts.
  template <typename Chosen>
  std::vector<RequestId> Waiting(Chosen chosen) const;
  void Erase(Request& request);

  // ---- deadlines
  void WatchDeadline(Request& request);
  void UnwatchDeadline(Request& request);
  // The request whose deadline passed first, no longer watched; null if none has.
  Request* TakeOverdue(Instant now);
  Instant NextDeadline() const {
    return deadlines_.empty() ? Instant::Infinite() : deadlines_.begin()->first;
  }

  // ---- answers
  // A part of the answer is handed out in a later turn.
  void Queue(Request& request);
  // The request's answer is complete. REQUIRES: a Get has its `view`, others have their `answer`.
  void Finish(Request& request);
  // Sets the answer and finishes. REQUIRES: the request is of this kind.
  template <typename Part, typename Result>
  void Answer(Request& request, Result result);
  // Answers with an error. REQUIRES: not a Get.
  void Fail(Request& request, const absl::Status& why);
  std::deque<RequestId> TakeAnswers();
  bool has_answers() const { return answers_posted_; }

  absl::Status CheckInvariants() const;

 private:
  const std::string node_name_;
  const size_t max_requests_per_client_;
  absl::AnyInvocable<void()> post_answers_;

  uint64_t next_number_ = 1;
  std::map<ClientId, std::unique_ptr<Client>> clients_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests_;
  std::set<std::pair<Instant, RequestId>> deadlines_;
  std::deque<RequestId> answers_;
  bool answers_posted_ = false;
};

template <typename Part>
Request& RequestTable::New(ClientId client, const ObjectId& id, Instant deadline, Part part) {
  auto request = std::make_unique<Request>();
  request->id = NewNumber();
  request->client = client;
  request->object = id;
  request->deadline = deadline;
  request->part = std::move(part);
  Request& made = *request;
  requests_.emplace(made.id, std::move(request));
  if (Client* owner = FindClient(client); owner != nullptr) owner->requests.PushBack(&made);
  return made;
}

template <typename Part>
Request* RequestTable::FindWaiting(RequestId id) const {
  Request* request = Find(id);
  if (request == nullptr || request->stage != Request::Stage::kWaiting) return nullptr;
  return std::holds_alternative<Part>(request->part) ? request : nullptr;
}

template <typename Chosen>
std::vector<RequestId> RequestTable::Waiting(Chosen chosen) const {
  std::vector<RequestId> waiting;
  for (const auto& [id, request] : requests_) {
    if (request->stage == Request::Stage::kWaiting && chosen(*request)) waiting.push_back(id);
  }
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

template <typename Part, typename Result>
void RequestTable::Answer(Request& request, Result result) {
  request.answer = [done = std::move(std::get<Part>(request.part).done),
                    result = std::move(result)]() mutable { done(std::move(result)); };
  Finish(request);
}

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_REQUEST_TABLE_H_
