// Sessions: programs of many ranks that survive the deaths of some.

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "phalanx/spmd.h"
#include "src/client/c/handles.h"

using phalanx::c::DurationOf;
using phalanx::c::Handle;
using phalanx::c::Report;
using phalanx::spmd::Session;

namespace {

// Leaves a call of the session whose function of the program has failed.
struct Refusal {};

absl::Status RefusalStatus() {
  return absl::CancelledError("a function of the program has failed");
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

absl::string_view Name(const char* name) { return name == nullptr ? absl::string_view() : name; }

absl::string_view View(const void* bytes, uint64_t size) {
  return absl::string_view(static_cast<const char*>(bytes), size);
}

// A null function stays one: the session does not call it then.
phalanx::spmd::Prepare PrepareOf(phx_prepare prepare, void* argument) {
  if (prepare == nullptr) return nullptr;
  return [prepare, argument] {
    if (prepare(argument) != 0) throw Refusal{};
  };
}

std::string Saved(phx_save save, void* argument) {
  const void* bytes = nullptr;
  uint64_t size = 0;
  if (save(argument, &bytes, &size) != 0) throw Refusal{};
  return std::string(View(bytes, size));
}

// No exception leaves a function of this interface. Returns the status of `body`.
template <typename Body>
absl::Status Contained(Body body) {
  try {
    return body();
  } catch (const Refusal&) {
    return RefusalStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the process has no memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

phalanx::spmd::Options OptionsOf(const phx_session_options* given) {
  phalanx::spmd::Options to;
  if (given == nullptr) return to;
  to.job = Text(given->job);
  to.task = Text(given->task);
  to.role = Text(given->role);
  to.world = given->world;
  if (given->result_copies != 0) to.result_copies = given->result_copies;
  if (given->local_copies != 0) to.local_copies = given->local_copies;
  to.peer_timeout = DurationOf(given->peer_timeout);
  to.checkpoint_dir = Text(given->checkpoint_dir);
  return to;
}

}  // namespace

phx_session* phx_session_join(phx_client* client, const phx_session_options* options) {
  phx_session* joined = nullptr;
  const absl::Status status = Contained([&]() -> absl::Status {
    absl::StatusOr<Session> session = Session::Join(*client->client, OptionsOf(options));
    if (session.ok()) joined = new phx_session{*std::move(session)};
    return session.status();
  });
  Report(status);
  return joined;
}

int phx_session_rank(const phx_session* session) { return session->session.rank(); }
int phx_session_world(const phx_session* session) { return session->session.world(); }
uint64_t phx_session_life(const phx_session* session) { return session->session.life(); }
uint64_t phx_session_version(const phx_session* session) { return session->session.version(); }
uint64_t phx_session_seq(const phx_session* session) { return session->session.seq(); }

void phx_session_stats_of(const phx_session* session, phx_session_stats* stats) {
  const phalanx::spmd::Stats from = session->session.stats();
  *stats = {from.repeated, from.made, from.prepared, from.checkpoint_bytes,
            absl::ToInt64Nanoseconds(from.recovery)};
}

int phx_session_allreduce(phx_session* session, int dtype, void* inout, uint64_t bytes, int op,
                          phx_prepare prepare, void* argument, const char* name) {
  return Report(Contained([&] {
    return session->session.Allreduce(static_cast<phalanx::DType>(dtype), inout, bytes,
                                      static_cast<phalanx::ReduceOp>(op),
                                      PrepareOf(prepare, argument), Name(name));
  }));
}

phx_call* phx_session_allreduce_async(phx_session* session, int dtype, void* inout, uint64_t bytes,
                                      int op, phx_prepare prepare, void* argument,
                                      const char* name) {
  phalanx::Future<phalanx::Done> call;
  const absl::Status status = Contained([&]() -> absl::Status {
    call = session->session.AllreduceAsync(static_cast<phalanx::DType>(dtype), inout, bytes,
                                           static_cast<phalanx::ReduceOp>(op),
                                           PrepareOf(prepare, argument), Name(name));
    // One that was not made, above all.
    return call.ready() ? call.Wait().status() : absl::OkStatus();
  });
  return Report(status) == 0 ? Handle(std::move(call)) : nullptr;
}

int phx_session_allreduce_by(phx_session* session, void* inout, uint64_t bytes, uint64_t element,
                             phx_fold fold, void* fold_argument, phx_prepare prepare,
                             void* argument, const char* name) {
  return Report(Contained([&] {
    return session->session.AllreduceBy(
        inout, bytes, element,
        [&](void* into, const void* from, uint64_t count) {
          if (fold(fold_argument, into, from, count) != 0) throw Refusal{};
        },
        PrepareOf(prepare, argument), Name(name));
  }));
}

int phx_session_allreduce_model(phx_session* session, phx_save save, phx_take add, phx_take load,
                                void* fold_argument, phx_prepare prepare, void* argument,
                                const char* name) {
  const auto taker = [fold_argument](phx_take take) {
    return [take, fold_argument](absl::string_view bytes) {
      const bool taken = take(fold_argument, bytes.data(), bytes.size()) == 0;
      return taken ? absl::OkStatus() : RefusalStatus();
    };
  };
  const auto saves = [&] { return Saved(save, fold_argument); };
  const auto adds = taker(add);
  const auto loads = taker(load);
  return Report(Contained([&] {
    return session->session.AllreduceModel({.save = saves, .add = adds, .load = loads},
                                           PrepareOf(prepare, argument), Name(name));
  }));
}

int phx_session_broadcast(phx_session* session, void* inout, uint64_t bytes, int root,
                          const char* name) {
  return Report(
      Contained([&] { return session->session.Broadcast(inout, bytes, root, Name(name)); }));
}

int phx_session_broadcast_sized(phx_session* session, uint64_t bytes, uint64_t element, int root,
                                phx_place place, void* argument, const char* name) {
  return Report(Contained([&] {
    return session->session.BroadcastSized(
        bytes, element, root, [&](uint64_t size) { return place(argument, size); }, Name(name));
  }));
}

int phx_session_allgather(phx_session* session, const void* input, uint64_t bytes, uint64_t element,
                          phx_place place, void* argument, uint64_t* offsets, const char* name) {
  return Report(Contained([&]() -> absl::Status {
    const absl::StatusOr<std::vector<uint64_t>> begins = session->session.AllgatherSized(
        input, bytes, element, [&](uint64_t size) { return place(argument, size); }, Name(name));
    if (begins.ok() && offsets != nullptr) std::copy(begins->begin(), begins->end(), offsets);
    return begins.status();
  }));
}

int phx_session_barrier(phx_session* session, const char* name) {
  return Report(Contained([&] { return session->session.Barrier(Name(name)); }));
}

int phx_session_load(phx_session* session, int with_local, phx_take_both take, void* argument,
                     uint64_t* version) {
  const auto taken = [take, argument](absl::string_view bytes, const char* local, uint64_t size) {
    const bool fits = take(argument, bytes.data(), bytes.size(), local, size) == 0;
    return fits ? absl::OkStatus() : RefusalStatus();
  };
  return Report(Contained([&]() -> absl::Status {
    absl::StatusOr<uint64_t> loaded = 0;
    if (with_local != 0) {
      loaded = session->session.LoadBytes([&](absl::string_view bytes, absl::string_view local) {
        // A local model of no bytes is one, too.
        return taken(bytes, local.empty() ? "" : local.data(), local.size());
      });
    } else {
      loaded = session->session.LoadBytes(
          [&](absl::string_view bytes) { return taken(bytes, nullptr, 0); });
    }
    if (loaded.ok()) *version = *loaded;
    return loaded.status();
  }));
}

int phx_session_checkpoint(phx_session* session, const void* bytes, uint64_t size,
                           const void* local, uint64_t local_size) {
  const absl::string_view model = View(bytes, size);
  return Report(Contained([&] {
    return local == nullptr ? session->session.CheckpointBytes(model)
                            : session->session.CheckpointBytes(model, View(local, local_size));
  }));
}

int phx_session_lazy_checkpoint(phx_session* session, phx_save save, void* argument) {
  return Report(Contained([&] {
    return session->session.LazyCheckpointBytes([save, argument] { return Saved(save, argument); });
  }));
}

int phx_session_print(phx_session* session, const char* text, size_t size) {
  return Report(Contained([&] { return session->session.Print(View(text, size)); }));
}

void phx_session_die(const phx_session* session, const char* death) {
  phalanx::internal::Access::Die(session->session, death);
}

int phx_session_leave(phx_session* session) {
  return Report(Contained([&] { return session->session.Leave(); }));
}

void phx_session_free(phx_session* session) { delete session; }
