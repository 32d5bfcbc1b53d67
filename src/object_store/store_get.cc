#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/object_store/store_impl.h"

namespace phalanx::object_store {

View Store::Impl::MakeView(Request& request, Copy* copy) {
  GetPart& part = std::get<GetPart>(request.part);
  part.pin = next_number_++;
  part.copy = copy;
  table_.Pin(copy);
  FindClient(request.client)->pins.emplace(part.pin, Pin{copy, 0});
  return View{part.pin,     copy->generation, copy->metadata,
              copy->buffer, copy->block,      copy->reduced_from};
}

void Store::Impl::AnswerGet(Request& request, absl::StatusOr<View> result) {
  std::get<GetPart>(request.part).view = std::move(result);
  Finish(request);
}

void Store::Impl::HandOutGet(RequestId id) {
  Request* request = FindRequest(id);
  GetPart* part = &std::get<GetPart>(request->part);
  // The callbacks may end the request: they are called from outside of it.
  if (part->why_void) {
    const absl::Status why = *std::exchange(part->why_void, std::nullopt);
    EndStreaming(request->client, std::exchange(part->void_pin, 0));
    auto on_void = std::move(part->events.on_void);
    if (on_void) on_void(why);
    request = FindRequest(id);
    if (request == nullptr) return;
    part = &std::get<GetPart>(request->part);
    part->events.on_void = std::move(on_void);
  }
  const bool last = request->stage == Request::Stage::kAnswered;
  std::optional<absl::StatusOr<View>> view = std::exchange(part->view, std::nullopt);
  auto on_view = std::move(part->events.on_view);
  if (last) Forget(*request);
  if (view) on_view(*std::move(view));
  if (last) return;
  if (request = FindRequest(id); request == nullptr) return;
  std::get<GetPart>(request->part).events.on_view = std::move(on_view);
}

void Store::Impl::CountWaiting(Gets& gets, const Request& request, int change) {
  gets.waiting += change;
  if (std::get<GetPart>(request.part).streaming) gets.waiting_streaming += change;
}

void Store::Impl::JoinObject(Request& request) {
  std::unique_ptr<Gets>& gets = gets_[request.object];
  if (gets == nullptr) {
    gets = std::make_unique<Gets>();
    gets->near = std::get<GetPart>(request.part).near;
  }
  gets->list.PushBack(&request);
  CountWaiting(*gets, request, 1);
  ++waiting_gets_;
}

void Store::Impl::LeaveObject(Request& request) {
  if (!request.of_object.linked) return;
  const auto it = gets_.find(request.object);
  it->second->list.Remove(&request);
  --waiting_gets_;
  if (request.stage == Request::Stage::kWaiting) CountWaiting(*it->second, request, -1);
  if (request.stage == Request::Stage::kAttached) --std::get<GetPart>(request.part).copy->readers;
  if (it->second->list.empty()) gets_.erase(it);
}

Copy* Store::Impl::StreamSource(const ObjectId& id) const {
  for (Copy* copy = table_.First(id); copy != nullptr; copy = copy->next_generation) {
    if (copy->state != CopyState::kComplete && copy->standing != Standing::kStandby) return copy;
  }
  return nullptr;
}

void Store::Impl::Attach(Request& request, Copy* copy) {
  View view = MakeView(request, copy);
  GetPart& part = std::get<GetPart>(request.part);
  FindClient(request.client)->pins.at(part.pin).streaming = request.id;
  part.view = std::move(view);
  request.stage = Request::Stage::kAttached;
  ++copy->readers;
  CountWaiting(*gets_.at(request.object), request, -1);
  if (request.in_deadlines) deadlines_.erase({request.deadline, request.id});
  request.in_deadlines = false;
  Queue(request);
}

void Store::Impl::Resolve(const ObjectId& id) {
  const auto it = gets_.find(id);
  if (it != gets_.end() && it->second->waiting > 0) {
    Copy* complete = table_.Complete(id);
    Copy* partial = it->second->waiting_streaming > 0 ? StreamSource(id) : nullptr;
    // Looks at each of them only when there is news for some: what many wait for is touched by
    // every one that gives up.
    const bool news = complete != nullptr || partial != nullptr;
    for (Request* request = news ? it->second->list.front() : nullptr; request != nullptr;) {
      Request* next = request->of_object.next;
      const bool waits = request->stage == Request::Stage::kWaiting;
      if (waits && complete != nullptr) {
        AnswerGet(*request, MakeView(*request, complete));
      } else if (waits && partial != nullptr && std::get<GetPart>(request->part).streaming) {
        Attach(*request, partial);
      }
      request = next;
    }
  }
  UpdateWant(id);
}

void Store::Impl::UpdateWant(const ObjectId& id) {
  const auto it = gets_.find(id);
  bool needed = false;
  if (it != gets_.end()) {
    const Gets& gets = *it->second;
    const Copy* partial = StreamSource(id);
    const bool written_here = partial != nullptr && partial->state == CopyState::kWriting;
    needed = gets.waiting > 0 && !written_here;
    for (const Copy* copy = table_.First(id); copy != nullptr && !needed;) {
      needed = copy->state == CopyState::kPulling && copy->readers > 0;
      copy = copy->next_generation;
    }
  }
  if (needed) {
    pulls_.Want(id, it == gets_.end() ? ObjectId() : it->second->near);
  } else {
    pulls_.Unwant(id);
    if (!pulls_.Wants(id)) ForgetLost(id);
  }
  const Copy* complete = table_.Complete(id);
  if (complete != nullptr && complete->standing == Standing::kAdopted) pulls_.EndFetch(id);
}

std::vector<Store::Impl::Request*> Store::Impl::ReadersOf(const Copy* copy) {
  std::vector<Request*> readers;
  if (copy->readers == 0) return readers;
  for (Request* r = gets_.at(copy->id)->list.front(); r != nullptr; r = r->of_object.next) {
    const bool attached = r->stage == Request::Stage::kAttached;
    if (attached && std::get<GetPart>(r->part).copy == copy) readers.push_back(r);
  }
  return readers;
}

void Store::Impl::EndReaders(Copy* copy) {
  for (Request* request : ReadersOf(copy)) {
    const PinId pin = std::get<GetPart>(request->part).pin;
    FindClient(request->client)->pins.at(pin).streaming = 0;
    LeaveObject(*request);
    request->stage = Request::Stage::kAnswered;
    // A view that is still to be handed out ends the request then.
    if (!request->in_answers) Forget(*request);
  }
}

void Store::Impl::VoidReaders(Copy* copy, const absl::Status& why) {
  if (DefectActive(Defect::kReaderNotVoided)) return EndReaders(copy);
  for (Request* request : ReadersOf(copy)) {
    GetPart& part = std::get<GetPart>(request->part);
    if (part.view) {
      // It has seen nothing yet.
      Unpin(*FindClient(request->client), part.pin, /*recycle=*/true);
      part.view.reset();
    } else {
      part.why_void = why;
      part.void_pin = part.pin;
      Queue(*request);
    }
    part.copy = nullptr;
    part.pin = 0;
    --copy->readers;
    request->stage = Request::Stage::kWaiting;
    CountWaiting(*gets_.at(request->object), *request, 1);
    WatchDeadline(*request);
  }
}

void Store::Impl::EndAllGets(const ObjectId& id, const absl::Status& why, bool only_impatient) {
  const auto it = gets_.find(id);
  if (it == gets_.end()) return;
  for (Request* request = it->second->list.front(); request != nullptr;) {
    Request* next = request->of_object.next;
    const bool ends = !only_impatient || std::get<GetPart>(request->part).fail_when_lost;
    if (ends && request->stage == Request::Stage::kWaiting) AnswerGet(*request, why);
    request = next;
  }
}

void Store::Impl::EndStreaming(ClientId id, PinId pin) {
  Client* client = FindClient(id);
  if (client == nullptr) return;
  if (const auto it = client->pins.find(pin); it != client->pins.end()) it->second.streaming = 0;
}

bool Store::Impl::Unpin(Client& client, PinId pin, bool recycle) {
  const auto it = client.pins.find(pin);
  if (it == client.pins.end()) return false;
  Copy* copy = it->second.copy;
  client.pins.erase(it);
  if (!recycle) copy->block->Condemn(client.id);
  table_.Unpin(copy);
  return true;
}

// ------------------------------------------------------------------------------ public methods

RequestId Store::Get(ClientId client, GetOptions options, GetEvents events) {
  Impl::Turn turn(*impl_);
  Impl::GetPart part;
  part.streaming = options.streaming;
  part.near = options.near;
  part.fail_when_lost = options.fail_when_lost;
  part.events = std::move(events);
  Impl::Request& request = impl_->NewRequest(client, options.id, options.deadline, std::move(part));
  if (absl::Status status = impl_->Admit(client, options.id); !status.ok()) {
    impl_->AnswerGet(request, std::move(status));
  } else if (Copy* copy = impl_->table_.Complete(options.id); copy != nullptr) {
    impl_->AnswerGet(request, impl_->MakeView(request, copy));
  } else if (options.deadline <= impl_->executor_.Now()) {
    impl_->OnDeadline(request);
  } else if (const auto lost = impl_->lost_.find(options.id);
             options.fail_when_lost && lost != impl_->lost_.end()) {
    impl_->AnswerGet(request, lost->second);
  } else {
    impl_->JoinObject(request);
    impl_->WatchDeadline(request);
    Copy* partial = options.streaming ? impl_->StreamSource(options.id) : nullptr;
    if (partial != nullptr) impl_->Attach(request, partial);
    impl_->UpdateWant(options.id);
  }
  return request.id;
}

absl::StatusOr<View> Store::PinCopy(ClientId id, const ObjectId& object,
                                    const Generation& generation) {
  Impl::Turn turn(*impl_);
  Impl::Client* client = impl_->FindClient(id);
  if (client == nullptr) return absl::InvalidArgumentError("the client is not open");
  Copy* copy = impl_->table_.Find(object, generation);
  if (copy == nullptr) {
    return absl::NotFoundError(absl::StrCat("object ", object.hex(), ", generation ",
                                            generation.ToString(), ": no copy is on node ",
                                            impl_->options_.name));
  }
  const PinId pin = impl_->next_number_++;
  impl_->table_.Pin(copy);
  client->pins.emplace(pin, Impl::Pin{copy, 0});
  return View{pin, copy->generation, copy->metadata, copy->buffer, copy->block, copy->reduced_from};
}

absl::Status Store::Release(ClientId id, PinId pin, bool recycle) {
  Impl::Turn turn(*impl_);
  Impl::Client* client = impl_->FindClient(id);
  const auto not_held = [pin] {
    return absl::NotFoundError(absl::StrCat("pin ", pin, " is not held by this client"));
  };
  if (client == nullptr) return not_held();
  const auto it = client->pins.find(pin);
  if (it == client->pins.end()) return not_held();
  // Who lets go of a partial view wants no more of it.
  if (Impl::Request* request = impl_->FindRequest(it->second.streaming); request != nullptr) {
    impl_->CancelRequest(*request);
  }
  impl_->Unpin(*client, pin, recycle);
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
