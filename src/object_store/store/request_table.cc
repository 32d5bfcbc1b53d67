#include "src/object_store/store/request_table.h"

#include "absl/strings/str_cat.h"

namespace phalanx::object_store {

ClientId RequestTable::OpenClient() {
  const ClientId id = NewNumber();
  clients_.emplace(id, std::make_unique<Client>()).first->second->id = id;
  return id;
}

Client* RequestTable::FindClient(ClientId id) const {
  const auto it = clients_.find(id);
  return it == clients_.end() ? nullptr : it->second.get();
}

Request* RequestTable::Find(RequestId id) const {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : it->second.get();
}

absl::Status RequestTable::Admit(ClientId client, const ObjectId& id) const {
  if (absl::Status status = Admit(client); !status.ok()) return status;
  if (id.nil()) return absl::InvalidArgumentError("the nil id names no object");
  return absl::OkStatus();
}

absl::Status RequestTable::Admit(ClientId client) const {
  const Client* owner = FindClient(client);
  if (owner == nullptr) return absl::InvalidArgumentError("the client is not open");
  // The request itself is counted already, so the limit is exceeded only by the one after it.
  if (owner->requests.size() > max_requests_per_client_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("node ", node_name_, ": ", max_requests_per_client_,
                     " requests of this client are not answered yet"));
  }
  return absl::OkStatus();
}

void RequestTable::Erase(Request& request) {
  // Both lists hold the request by number or by pointer, which must not outlive it.
  UnwatchDeadline(request);
  if (request.of_client.linked) FindClient(request.client)->requests.Remove(&request);
  requests_.erase(request.id);
}

void RequestTable::WatchDeadline(Request& request) {
  if (request.in_deadlines || request.deadline.infinite()) return;
  request.in_deadlines = true;
  deadlines_.emplace(request.deadline, request.id);
}

void RequestTable::UnwatchDeadline(Request& request) {
  if (std::exchange(request.in_deadlines, false)) deadlines_.erase({request.deadline, request.id});
}

Request* RequestTable::TakeOverdue(Instant now) {
  if (NextDeadline() > now) return nullptr;
  Request* request = Find(deadlines_.begin()->second);
  // Taken out, so that a caller that only notes the deadline does not find it again.
  UnwatchDeadline(*request);
  return request;
}

void RequestTable::Queue(Request& request) {
  // A view and its void can be decided in one turn: both are handed out together.
  if (std::exchange(request.in_answers, true)) return;
  answers_.push_back(request.id);
  // One task for all answers of a turn. It is posted, because a callback must not run inside the
  // call that led to it.
  if (!std::exchange(answers_posted_, true)) post_answers_();
}

void RequestTable::Finish(Request& request) {
  request.stage = Request::Stage::kAnswered;
  UnwatchDeadline(request);
  Queue(request);
}

void RequestTable::Fail(Request& request, const absl::Status& why) {
  std::visit(
      [&](auto& part) {
        using Part = std::decay_t<decltype(part)>;
        // A Get has a view in place of an answer; the store ends it through GetRequests.
        if constexpr (!std::is_same_v<Part, GetPart>) Answer<Part>(request, why);
      },
      request.part);
}

// Requests that callbacks answer go into a new list, and so into a task of their own.
std::deque<RequestId> RequestTable::TakeAnswers() {
  answers_posted_ = false;
  return std::exchange(answers_, {});
}

absl::Status RequestTable::CheckInvariants() const {
  size_t watched = 0;
  size_t queued = 0;
  size_t listed = 0;
  for (const auto& [id, request] : requests_) {
    watched += request->in_deadlines ? 1 : 0;
    queued += request->in_answers ? 1 : 0;
    listed += request->of_client.linked ? 1 : 0;
    if (request->in_deadlines && !deadlines_.contains({request->deadline, id})) {
      return absl::InternalError("a deadline is not watched");
    }
    if (request->stage == Request::Stage::kAnswered && !request->in_answers) {
      return absl::InternalError("an answered request is not queued");
    }
  }
  for (const auto& [id, client] : clients_) listed -= client->requests.size();
  if (watched != deadlines_.size()) return absl::InternalError("a deadline without its request");
  if (queued > answers_.size()) return absl::InternalError("an answer is not queued");
  if (listed != 0) return absl::InternalError("a client's list of requests is wrong");
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
