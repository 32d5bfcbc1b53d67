#include "src/object_store/store/get_requests.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/object_store/objects/local_scopes.h"

namespace phalanx::object_store {
namespace {

View ViewOf(const Copy& copy, PinId pin) {
  return View{pin,         copy.generation, copy.traits.metadata,
              copy.buffer, copy.block,      copy.traits.reduced_from};
}

}  // namespace

GetRequests::GetRequests(std::string node_name, Executor& executor, Turns& turns,
                         RequestTable& requests, ObjectTable& table, PullManager& pulls,
                         int num_shards)
    : node_name_(std::move(node_name)),
      executor_(executor),
      turns_(turns),
      requests_(requests),
      table_(table),
      pulls_(pulls),
      leases_(num_shards) {}

View GetRequests::MakeView(Request& request, Copy* copy) {
  GetPart& part = std::get<GetPart>(request.part);
  part.pin = requests_.NewNumber();
  part.copy = copy;
  // From here to Release the copy can be neither evicted nor recycled: the client maps its pages.
  table_.Pin(copy);
  copy->reads.any = true;
  requests_.FindClient(request.client)->pins.emplace(part.pin, Pin{copy, 0});
  return ViewOf(*copy, part.pin);
}

void GetRequests::Answer(Request& request, absl::StatusOr<View> result) {
  std::get<GetPart>(request.part).view = std::move(result);
  Leave(request);
  requests_.Finish(request);
}

void GetRequests::HandOut(RequestId id) {
  Request* request = requests_.Find(id);
  GetPart* part = &std::get<GetPart>(request->part);
  // A callback can end the request, so the callbacks are moved out of it before they are called.
  if (part->why_void) {
    const absl::Status why = *std::exchange(part->why_void, std::nullopt);
    EndStreaming(request->client, std::exchange(part->void_pin, 0));
    auto on_void = std::move(part->events.on_void);
    if (on_void) on_void(why);
    request = requests_.Find(id);
    if (request == nullptr) return;
    part = &std::get<GetPart>(request->part);
    part->events.on_void = std::move(on_void);
  }
  const bool last = request->stage == Request::Stage::kAnswered;
  std::optional<absl::StatusOr<View>> view = std::exchange(part->view, std::nullopt);
  auto on_view = std::move(part->events.on_view);
  // Before the call: the callback can release the view, or close the client, at once.
  if (last) Erase(*request);
  if (view) on_view(*std::move(view));
  if (last) return;
  if (request = requests_.Find(id); request == nullptr) return;
  std::get<GetPart>(request->part).events.on_view = std::move(on_view);
}

void GetRequests::CountWaiting(Gets& gets, const Request& request, int change) {
  gets.waiting += change;
  if (std::get<GetPart>(request.part).streaming) gets.waiting_streaming += change;
}

void GetRequests::Join(Request& request) {
  std::unique_ptr<Gets>& gets = gets_[request.object];
  if (gets == nullptr) {
    gets = std::make_unique<Gets>();
    // The first Get decides, because the node sends one Want for all of them.
    gets->near = std::get<GetPart>(request.part).near;
    gets->name = std::get<GetPart>(request.part).name;
  }
  const Scope& scope = std::get<GetPart>(request.part).scope;
  if (!scope.empty()) gets->scope = scope;
  gets->list.PushBack(&request);
  CountWaiting(*gets, request, 1);
  ++open_;
}

void GetRequests::Leave(Request& request) {
  parked_.erase(request.id);
  scoped_.erase(request.id);
  if (!request.of_object.linked) return;
  const auto it = gets_.find(request.object);
  it->second->list.Remove(&request);
  --open_;
  if (request.stage == Request::Stage::kWaiting) CountWaiting(*it->second, request, -1);
  if (request.stage == Request::Stage::kAttached)
    --std::get<GetPart>(request.part).copy->reads.streaming;
  if (it->second->list.empty()) gets_.erase(it);
}

Copy* GetRequests::StreamSource(const ObjectId& id) const {
  for (Copy* copy = table_.First(id); copy != nullptr; copy = copy->next_generation) {
    // A generation that stands by may differ from the object, so no reader gets its bytes.
    if (copy->state != CopyState::kComplete && copy->standing != Standing::kStandby) return copy;
  }
  return nullptr;
}

void GetRequests::Attach(Request& request, Copy* copy) {
  View view = MakeView(request, copy);
  GetPart& part = std::get<GetPart>(request.part);
  requests_.FindClient(request.client)->pins.at(part.pin).streaming = request.id;
  part.view = std::move(view);
  request.stage = Request::Stage::kAttached;
  ++copy->reads.streaming;
  CountWaiting(*gets_.at(request.object), request, -1);
  // The deadline is for the view, which the reader has now.
  requests_.UnwatchDeadline(request);
  requests_.Queue(request);
}

void GetRequests::Resolve(const ObjectId& id) {
  const auto it = gets_.find(id);
  if (it != gets_.end() && it->second->waiting > 0) {
    Copy* complete = table_.Complete(id);
    Copy* partial = it->second->waiting_streaming > 0 ? StreamSource(id) : nullptr;
    // The list is only walked if a Get can be answered: an object with many waiting Gets is touched
    // whenever one of them gives up, and a walk each time would be quadratic.
    const bool news = complete != nullptr || partial != nullptr;
    for (Request* request = news ? it->second->list.front() : nullptr; request != nullptr;) {
      Request* next = request->of_object.next;
      const bool waits = request->stage == Request::Stage::kWaiting;
      if (waits && complete != nullptr) {
        Answer(*request, MakeView(*request, complete));
      } else if (waits && partial != nullptr && std::get<GetPart>(request->part).streaming) {
        Attach(*request, partial);
      }
      request = next;
    }
  }
  UpdateWant(id);
}

void GetRequests::UpdateWant(const ObjectId& id) {
  const auto it = gets_.find(id);
  bool needed = false;
  if (it != gets_.end()) {
    const Gets& gets = *it->second;
    const Copy* partial = StreamSource(id);
    // Bytes that a client here writes need not be fetched: its Seal answers the Gets.
    const bool written_here = partial != nullptr && partial->state == CopyState::kWriting;
    needed = gets.waiting > 0 && !written_here;
    for (const Copy* copy = table_.First(id); copy != nullptr && !needed;) {
      // A reader that streams a partial copy needs the rest of it.
      needed = copy->state == CopyState::kPulling && copy->reads.streaming > 0;
      copy = copy->next_generation;
    }
  }
  if (needed) {
    if (it == gets_.end()) {
      pulls_.Want(id);
    } else {
      pulls_.Want(id, it->second->near, it->second->name, it->second->scope);
    }
  } else {
    pulls_.Unwant(id);
    if (!pulls_.Wants(id)) ForgetLost(id);
  }
  const Copy* complete = table_.Complete(id);
  // Another way brought the object, so the order to fetch it is carried out.
  if (complete != nullptr && complete->standing == Standing::kAdopted) pulls_.EndFetch(id);
}

std::vector<Request*> GetRequests::ReadersOf(const Copy* copy) {
  std::vector<Request*> readers;
  if (copy->reads.streaming == 0) return readers;
  for (Request* r = gets_.at(copy->id)->list.front(); r != nullptr; r = r->of_object.next) {
    const bool attached = r->stage == Request::Stage::kAttached;
    if (attached && std::get<GetPart>(r->part).copy == copy) readers.push_back(r);
  }
  return readers;
}

void GetRequests::EndReaders(Copy* copy) {
  for (Request* request : ReadersOf(copy)) {
    const PinId pin = std::get<GetPart>(request->part).pin;
    // The pin stays: the view is the reader's until Release. Only the request ends.
    requests_.FindClient(request->client)->pins.at(pin).streaming = 0;
    Leave(*request);
    request->stage = Request::Stage::kAnswered;
    // Handing out a view that is still queued erases the request.
    if (!request->in_answers) Erase(*request);
  }
}

void GetRequests::VoidReaders(Copy* copy, const absl::Status& why) {
  if (DefectActive(Defect::kReaderNotVoided)) return EndReaders(copy);
  for (Request* request : ReadersOf(copy)) {
    GetPart& part = std::get<GetPart>(request->part);
    if (part.view) {
      // The view was not handed out: the reader has read nothing.
      Unpin(*requests_.FindClient(request->client), part.pin, /*recycle=*/true);
      part.view.reset();
    } else {
      part.why_void = why;
      // The reader may still look at these bytes, so the pin stays until Release although they are
      // void.
      part.void_pin = part.pin;
      requests_.Queue(*request);
    }
    part.copy = nullptr;
    part.pin = 0;
    --copy->reads.streaming;
    request->stage = Request::Stage::kWaiting;
    CountWaiting(*gets_.at(request->object), *request, 1);
    // The request waits for another generation, under its old deadline.
    requests_.WatchDeadline(*request);
  }
}

void GetRequests::NoteFailure(const ObjectId& id, const absl::Status& failure) {
  const auto gets = gets_.find(id);
  if (gets != gets_.end()) gets->second->failure = failure;
}

void GetRequests::EndAll(const ObjectId& id, const absl::Status& why, bool only_unless_lost) {
  const auto it = gets_.find(id);
  if (it == gets_.end()) return;
  for (Request* request = it->second->list.front(); request != nullptr;) {
    Request* next = request->of_object.next;
    // Attached readers get the error from VoidReaders when their copy ends.
    const bool ends = !only_unless_lost || std::get<GetPart>(request->part).fail_when_lost;
    if (ends && request->stage == Request::Stage::kWaiting) Answer(*request, why);
    request = next;
  }
}

void GetRequests::EndStreaming(ClientId id, PinId pin) {
  Client* client = requests_.FindClient(id);
  if (client == nullptr) return;
  if (const auto it = client->pins.find(pin); it != client->pins.end()) it->second.streaming = 0;
}

bool GetRequests::Unpin(Client& client, PinId pin, bool recycle) {
  const auto it = client.pins.find(pin);
  if (it == client.pins.end()) return false;
  Copy* copy = it->second.copy;
  client.pins.erase(it);
  // A process that may still map the pages would see the next object's bytes in them.
  if (!recycle) copy->block->Condemn(client.id);
  table_.Unpin(copy);
  return true;
}

absl::Status GetRequests::DeadlineStatus(const Request& request) const {
  const auto text = [&](absl::string_view what) {
    return absl::StrCat("object ", request.object.hex(), " on node ", node_name_, ": ", what);
  };
  if (parked_.contains(request.id)) {
    return absl::DeadlineExceededError(text(
        absl::StrCat("shard ", leases_.ShardOf(request.object),
                     " of the directory was out of touch for longer than a lease. Other bytes can "
                     "have been put under this id meanwhile, so the node serves it when it has "
                     "registered again")));
  }
  if (const auto* deletion = std::get_if<DeletePart>(&request.part);
      deletion != nullptr && !deletion->waits_for.empty()) {
    return absl::DeadlineExceededError(
        text(absl::StrCat("the deletion is recorded, but copies of the object can still be read: "
                          "the Delete waits for ",
                          deletion->waits_for)));
  }
  const bool memory = request.ticket != 0 || (std::holds_alternative<GetPart>(request.part) &&
                                              pulls_.WaitsForMemory(request.object));
  if (!memory) {
    const bool get = std::holds_alternative<GetPart>(request.part);
    const auto gets = gets_.find(request.object);
    if (get && gets != gets_.end() && !gets->second->failure.ok()) {
      return absl::DeadlineExceededError(
          text(absl::StrCat("no copy has arrived before the deadline; the last pull that failed: ",
                            gets->second->failure.message())));
    }
    return absl::DeadlineExceededError(
        text(get ? "it was not put, or no copy has arrived, before the deadline"
                 : "no answer before the deadline"));
  }
  return absl::ResourceExhaustedError(
      text(absl::StrCat("no memory became free before the deadline; ", table_.used_bytes(), " of ",
                        table_.capacity_bytes(), " bytes are used, ", table_.pinned_bytes(),
                        " by primary copies and readers: delete objects, release views, wait "
                        "longer or give the node a larger --capacity")));
}

void GetRequests::Erase(Request& request) {
  Leave(request);
  requests_.Erase(request);
}

void GetRequests::CloseClient(Client& client, bool clean) {
  std::vector<PinId> pins;
  for (const auto& [pin, held] : client.pins) pins.push_back(pin);
  // In a fixed order, so that a simulation replays exactly.
  std::sort(pins.begin(), pins.end());
  // A client that ended without a goodbye may have left a child that still maps the pages.
  for (const PinId pin : pins) Unpin(client, pin, /*recycle=*/clean);
}

void GetRequests::Cancel(Request& request) {
  turns_.Touch(request.object);
  GetPart& part = std::get<GetPart>(request.part);
  EndStreaming(request.client, part.void_pin);
  // A view that was handed out stays pinned until the reader releases it.
  if (part.view && part.view->ok()) {
    Unpin(*requests_.FindClient(request.client), part.pin, /*recycle=*/true);
  } else {
    EndStreaming(request.client, part.pin);
  }
  Erase(request);
}

// ------------------------------------------------------------------------------------ clients

RequestId GetRequests::Get(ClientId client, GetOptions options, GetEvents events,
                           const absl::Status& refused) {
  GetPart part;
  part.streaming = options.streaming;
  part.fail_when_lost = options.fail_when_lost;
  part.near = options.near;
  part.name = std::move(options.name);
  part.scope = std::move(options.scope);
  part.events = std::move(events);
  Request& request = requests_.New(client, options.id, options.deadline, std::move(part));
  if (absl::Status status = requests_.Admit(client, options.id); !status.ok()) {
    Answer(request, std::move(status));
  } else if (!refused.ok()) {
    Answer(request, refused);
  } else {
    if (!std::get<GetPart>(request.part).scope.empty()) scoped_.insert(request.id);
    Start(request);
  }
  return request.id;
}

void GetRequests::EndScope(const Scope& scope) {
  // A copy: Answer takes requests out of the set.
  const std::set<RequestId> scoped = scoped_;
  for (const RequestId id : scoped) {
    Request& request = *requests_.Find(id);
    const Scope& named = std::get<GetPart>(request.part).scope;
    const bool ends = named.name == scope.name && named.number <= scope.number;
    // Attached readers get the error when their copy ends.
    if (!ends || request.stage != Request::Stage::kWaiting) continue;
    turns_.Touch(request.object);
    Answer(request, EndedScopeStatus(request.object, named));
  }
}

void GetRequests::Start(Request& request) {
  const ObjectId& id = request.object;
  const GetPart& part = std::get<GetPart>(request.part);
  // The clock is read after the request: a process that was stopped must not answer a Get that
  // began meanwhile from a lease that has ended meanwhile.
  const bool parks = !leases_.Serves(id, executor_.ReadClock());
  Copy* copy = parks ? nullptr : table_.Complete(id);
  if (copy != nullptr) {
    Answer(request, MakeView(request, copy));
  } else if (request.deadline <= executor_.Now()) {
    turns_.Touch(id);
    if (parks) parked_.insert(request.id);
    Answer(request, DeadlineStatus(request));
  } else if (parks) {
    parked_.insert(request.id);
    requests_.WatchDeadline(request);
  } else if (const auto lost = lost_.find(id); part.fail_when_lost && lost != lost_.end()) {
    Answer(request, lost->second);
  } else {
    Join(request);
    requests_.WatchDeadline(request);
    Copy* partial = part.streaming ? StreamSource(id) : nullptr;
    if (partial != nullptr) Attach(request, partial);
    // In this turn, without Resolve: nothing here can answer the Get, as was checked above.
    UpdateWant(id);
  }
}

void GetRequests::Unpark(int shard) {
  if (parked_.empty() || !leases_.Valid(shard, executor_.ReadClock())) return;
  const std::vector<RequestId> parked(parked_.begin(), parked_.end());
  for (const RequestId id : parked) {
    Request& request = *requests_.Find(id);
    if (leases_.ShardOf(request.object) != shard) continue;
    parked_.erase(id);
    requests_.UnwatchDeadline(request);
    Start(request);
  }
}

absl::StatusOr<View> GetRequests::PinCopy(ClientId id, const ObjectId& object,
                                          const Generation& generation) {
  Client* client = requests_.FindClient(id);
  if (client == nullptr) return absl::InvalidArgumentError("the client is not open");
  Copy* copy = table_.Find(object, generation);
  if (copy == nullptr) {
    return absl::NotFoundError(absl::StrCat("object ", object.hex(), ", generation ",
                                            generation.ToString(), ": no copy is on node ",
                                            node_name_));
  }
  const PinId pin = requests_.NewNumber();
  table_.Pin(copy);
  client->pins.emplace(pin, Pin{copy, 0});
  return ViewOf(*copy, pin);
}

absl::Status GetRequests::Release(ClientId id, PinId pin, bool recycle) {
  Client* client = requests_.FindClient(id);
  const auto not_held = [pin] {
    return absl::NotFoundError(absl::StrCat("pin ", pin, " is not held by this client"));
  };
  if (client == nullptr) return not_held();
  const auto it = client->pins.find(pin);
  if (it == client->pins.end()) return not_held();
  // A reader that releases a partial view does not want the rest.
  // Before the pin goes, which Cancel looks up.
  if (Request* request = requests_.Find(it->second.streaming); request != nullptr) {
    Cancel(*request);
  }
  Unpin(*client, pin, recycle);
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------- lost objects

void GetRequests::OnLost(const ObjectId& id, absl::string_view reason) {
  if (!pulls_.Wants(id)) return;
  const absl::Status why =
      absl::DataLossError(absl::StrCat("object ", id.hex(), " is lost: ", reason));
  // Kept while the object is wanted: a Get with fail_when_lost that comes later must end, too, and
  // the shard notifies a node only once.
  lost_[id] = why;
  turns_.Touch(id);
  EndAll(id, why, /*only_unless_lost=*/true);
}

absl::Status GetRequests::CheckInvariants() const {
  for (const auto& [id, gets] : gets_) {
    if (gets->list.empty()) return absl::InternalError("an empty list of Gets");
    if (gets->waiting == 0) continue;
    if (table_.Complete(id) != nullptr) {
      return absl::InternalError(
          absl::StrCat("object ", id.ShortHex(), " is complete, and Gets wait for it"));
    }
    if (!pulls_.Wants(id) && StreamSource(id) == nullptr) {
      return absl::InternalError(
          absl::StrCat("Gets wait for object ", id.ShortHex(), ", which this node does not want"));
    }
  }
  for (const RequestId id : parked_) {
    const Request* request = requests_.Find(id);
    if (request == nullptr || request->of_object.linked) {
      return absl::InternalError(
          absl::StrCat("request ", id, " is parked, and has ended or waits"));
    }
  }
  for (const ObjectId& id : pulls_.WantedByClients()) {
    if (gets_.contains(id)) continue;
    return absl::InternalError(
        absl::StrCat("object ", id.ShortHex(), " is wanted by clients, and no Get is open"));
  }
  for (const auto& [id, client] : requests_.clients()) {
    for (const auto& [pin, held] : client->pins) {
      if (held.streaming == 0 || requests_.Find(held.streaming) != nullptr) continue;
      return absl::InternalError(absl::StrCat("pin ", pin, " names a Get that has ended"));
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
