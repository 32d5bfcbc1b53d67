// The structs behind the handles of phalanx/c.h, and how its functions report errors.
//
// Each handle is freed by its own function. State that handles share (a connection, a buffer's
// pages) lives as long as any of them. The thread rules are those of phalanx/c.h.
#ifndef PHALANX_CLIENT_C_HANDLES_H_
#define PHALANX_CLIENT_C_HANDLES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/c.h"
#include "phalanx/client.h"
#include "phalanx/group.h"
#include "phalanx/job.h"
#include "phalanx/ps.h"
#include "phalanx/spmd.h"
#include "src/client/access.h"
#include "src/client/connection/call.h"
#include "src/client/writer_state.h"

namespace phalanx::c {

using Creating = std::shared_ptr<internal::CreateCall>;

// A Create is not a Future: its result can be taken only once.
using AnyCall =
    std::variant<Future<PutResult>, Future<Buffer>, Future<std::vector<Buffer>>, Future<Done>,
                 Future<int>, Future<bool>, Future<ObjectStatus>, Future<BroadcastProgress>,
                 Future<GroupProgress>, Future<std::vector<ObjectId>>, Future<ps::Reply>,
                 Future<ps::PulledRows>, Creating>;

// Stores `status` as this thread's last error, unless it is OK, and returns its code.
int Report(const absl::Status& status);

// A negative number means no limit.
absl::Duration DurationOf(int64_t nanos);
ObjectId IdOf(const char* id);
std::vector<ObjectId> IdsOf(const char* ids, size_t n);
// Reads n strings, one after the other, each with its terminating zero.
std::vector<std::string> NamesOf(const char* names, size_t n);

// Returns a call's handle. Returns null, with FailedPrecondition, for a Future without a call.
phx_call* Handle(AnyCall call);
// Returns null if the call ended before it had a state.
internal::Call* StateOf(const AnyCall& call);
// Returns how the call ended. REQUIRES: the call has ended.
absl::Status OutcomeOf(const AnyCall& call);

// Fills in at most `n` of them, and returns how many there are.
int64_t ListMembers(const std::vector<Member>& members, phx_member_info* infos, size_t n);

}  // namespace phalanx::c

struct phx_client {
  std::shared_ptr<phalanx::Client> client;
};

struct phx_call {
  phalanx::c::AnyCall call;
};

struct phx_buffer {
  phalanx::Buffer buffer;
};

struct phx_ref {
  std::shared_ptr<phalanx::Client> client;
  phalanx::ObjectId id;
};

struct phx_writer {
  std::unique_ptr<phalanx::internal::WriterState> state;
};

struct phx_member {
  phalanx::Membership member;
};
struct phx_group {
  phalanx::Group group;
};
struct phx_message {
  phalanx::Message message;
};
struct phx_session {
  phalanx::spmd::Session session;
};
struct phx_ps_server {
  phalanx::ps::Server server;
};
struct phx_ps_worker {
  phalanx::ps::Worker worker;
};
struct phx_ps_table {
  phalanx::ps::AnyTable table;
};

struct phx_stream {
  phalanx::ObjectStream stream;
};

#endif  // PHALANX_CLIENT_C_HANDLES_H_
