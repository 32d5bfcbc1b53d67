// ps::Postoffice, ps::Van, ps::Environment, and the texts of messages.

#include <chrono>
#include <sstream>

#include "ps/internal/env.h"
#include "ps/internal/message.h"
#include "ps/internal/postoffice.h"
#include "ps/internal/van.h"
#include "src/ps_lite/office.h"

namespace ps {
namespace {

using phalanx::ps_lite::Office;
using phalanx::ps_lite::Role;

constexpr int kNothing = std::numeric_limits<int>::max();

Role OwnRole() { return Office::Get().settings().role; }

}  // namespace

// ---------------------------------------------------------------------------- Environment

std::shared_ptr<Environment> Environment::_GetSharedRef() {
  static auto* const environment = new std::shared_ptr<Environment>(new Environment);
  return *environment;
}

Environment* Environment::Get() { return _GetSharedRef().get(); }

Environment* Environment::Init(const std::unordered_map<std::string, std::string>& envs) {
  Get()->given_ = envs;
  return Get();
}

const char* Environment::find(const char* name) {
  const auto found = given_.find(name);
  return found == given_.end() ? std::getenv(name) : found->second.c_str();
}

// ---------------------------------------------------------------------------- Van

int Van::Send(Message& msg) { return Office::Get().Send(&msg); }

const Node& Van::my_node() const {
  if (!IsReady()) Office::Throw("there is no node before Start");
  return Office::Get().node();
}

bool Van::IsReady() const { return Office::Get().ready(); }

// ---------------------------------------------------------------------------- Postoffice

Postoffice* Postoffice::Get() {
  static auto* const postoffice = new Postoffice;
  return postoffice;
}

void Postoffice::Start(int customer_id, const char*, bool) { Office::Get().Start(customer_id); }

void Postoffice::Finalize(int customer_id, bool do_barrier) {
  Office::Get().Finalize(customer_id, do_barrier);
}

void Postoffice::RegisterExitCallback(const Callback& callback) {
  Office::Get().SetExitCallback(callback);
}

void Postoffice::Barrier(int customer_id, int node_group) {
  Office::Get().Barrier(customer_id, node_group);
}

void Postoffice::AddCustomer(Customer* customer) {
  if (Office::Get().registry().Add(customer)) return;
  Office::Throw("customer " + std::to_string(customer->customer_id()) + " of app " +
                std::to_string(customer->app_id()) + " exists already");
}

void Postoffice::RemoveCustomer(Customer* customer) { Office::Get().registry().Remove(customer); }

Customer* Postoffice::GetCustomer(int app_id, int customer_id, int timeout) const {
  return Office::Get().registry().Find(app_id, customer_id, std::chrono::seconds(timeout));
}

const std::vector<int>& Postoffice::GetNodeIDs(int node_id) const {
  return Office::Get().NodeIds(node_id);
}

const std::vector<Range>& Postoffice::KeyRanges(uint64_t greatest) {
  return Office::Get().KeyRanges(greatest);
}

std::vector<int> Postoffice::GetDeadNodes(int) { return Office::Get().DeadNodes(); }

int Postoffice::num_workers() const { return Office::Get().settings().workers; }
int Postoffice::num_servers() const { return Office::Get().settings().servers; }
bool Postoffice::is_worker() const { return OwnRole() == Role::kWorker; }
bool Postoffice::is_server() const { return OwnRole() == Role::kServer; }
bool Postoffice::is_scheduler() const { return OwnRole() == Role::kScheduler; }
int Postoffice::verbose() const { return Office::Get().settings().verbose; }

// ---------------------------------------------------------------------------- texts

const int Node::kEmpty = kNothing;
const int Meta::kEmpty = kNothing;

std::string Node::DebugString() const {
  constexpr const char* kNames[] = {"server", "worker", "scheduler"};
  std::ostringstream text;
  text << "[role=" << kNames[role];
  if (id != kEmpty) text << ", id=" << id;
  text << ", ip=" << hostname << ", port=" << port << ", is_recovery=" << is_recovery << "]";
  return text.str();
}

std::string Node::ShortDebugString() const {
  constexpr const char* kNames[] = {"S", "W", "H"};
  return kNames[role] + (id == kEmpty ? std::string() : "[" + std::to_string(id) + "]");
}

std::string Control::DebugString() const {
  constexpr const char* kNames[] = {"EMPTY",   "TERMINATE", "ADD_NODE",
                                    "BARRIER", "ACK",       "HEARTBEAT"};
  if (empty()) return "";
  std::ostringstream text;
  text << "cmd=" << kNames[cmd];
  for (const Node& each : node) text << " " << each.DebugString();
  if (cmd == BARRIER) text << ", barrier_group=" << barrier_group;
  return text.str();
}

std::string Meta::DebugString() const {
  std::ostringstream text;
  text << (sender == kEmpty ? "?" : std::to_string(sender)) << " => "
       << (recver == kEmpty ? "?" : std::to_string(recver)) << ". Meta: request=" << request;
  if (timestamp != kEmpty) text << ", timestamp=" << timestamp;
  if (!control.empty()) {
    text << ", control={ " << control.DebugString() << " }";
  } else {
    text << ", app_id=" << app_id << ", customer_id=" << customer_id
         << ", simple_app=" << simple_app << ", push=" << push << ", pull=" << pull;
  }
  if (head != kEmpty) text << ", head=" << head;
  if (control.empty() && !simple_app) text << ", key=" << key;
  if (!body.empty()) text << ", body=" << body;
  for (const DataType type : data_type) text << " " << DataTypeName[type];
  return text.str();
}

std::string Message::DebugString() const {
  std::string text = meta.DebugString();
  if (!data.empty()) text += " Body:";
  for (const auto& each : data) text += " data_size=" + std::to_string(each.size());
  return text;
}

}  // namespace ps
