#include "src/rabit/session_engine.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <exception>
#include <type_traits>
#include <utility>
#include <vector>

namespace phalanx::rabit {
namespace {

namespace mpi = ::rabit::engine::mpi;

// The store knows integers by their sizes. char has a sign on some machines.
template <typename T>
constexpr int IntegerType() {
  if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? PHX_I8 : PHX_U8;
  if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? PHX_I32 : PHX_U32;
  return std::is_signed_v<T> ? PHX_I64 : PHX_U64;
}

int TypeOf(int type) {
  constexpr int kTypes[] = {IntegerType<char>(),
                            IntegerType<unsigned char>(),
                            IntegerType<int>(),
                            IntegerType<unsigned int>(),
                            IntegerType<long>(),           // NOLINT
                            IntegerType<unsigned long>(),  // NOLINT
                            PHX_F32,
                            PHX_F64,
                            IntegerType<long long>(),            // NOLINT
                            IntegerType<unsigned long long>()};  // NOLINT
  static_assert(mpi::kULongLong == std::size(kTypes) - 1);
  return kTypes[type];
}

int OpOf(int op) {
  constexpr int kOps[] = {PHX_MAX, PHX_MIN, PHX_SUM, PHX_BIT_OR};
  static_assert(mpi::kMax == 0 && mpi::kMin == 1 && mpi::kSum == 2 && mpi::kBitwiseOR == 3);
  return kOps[op];
}

}  // namespace

struct SessionEngine::PrepareCall {
  Preparation preparation;
  Guard* guard;

  phx_prepare function() const {
    if (preparation.prepare == nullptr) return nullptr;
    return [](void* self) {
      auto* const call = static_cast<PrepareCall*>(self);
      return call->guard->Run([call] { call->preparation.prepare(call->preparation.argument); });
    };
  }
};

struct SessionEngine::FoldCall {
  library::Reduce* reduce;
  size_t element;
  Guard* guard;

  static int Fold(void* self, void* into, const void* from, uint64_t count) {
    auto* const call = static_cast<FoldCall*>(self);
    return call->guard->Run([=] { call->FoldAll(into, from, count); });
  }
  // A function of Rabit counts elements with an int.
  void FoldAll(void* into, const void* from, uint64_t count) const {
    const MPI::Datatype type{element};
    for (uint64_t at = 0; at < count;) {
      const uint64_t n = std::min<uint64_t>(count - at, INT_MAX);
      reduce(static_cast<const char*>(from) + at * element, static_cast<char*>(into) + at * element,
             static_cast<int>(n), type);
      at += n;
    }
  }
};

struct SessionEngine::TakeCall {
  library::Loaded global;
  library::Loaded local;
  Guard* guard;

  static int Take(void* self, const void* bytes, uint64_t size, const void* local,
                  uint64_t local_size) {
    auto* const call = static_cast<TakeCall*>(self);
    return call->guard->Run([=] {
      call->global.load(call->global.model, bytes, size);
      if (call->local.model != nullptr) call->local.load(call->local.model, local, local_size);
    });
  }
};

std::unique_ptr<SessionEngine> SessionEngine::Join(const ClientFunctions& client,
                                                   const Parameters& parameters, Error* wrong) {
  // What has been made is freed with it if the rest fails.
  std::unique_ptr<SessionEngine> engine(new SessionEngine(client));
  engine->boot_by_caller_ = parameters.boot_by_caller;
  engine->connection_ = client.connect(nullptr);
  if (engine->connection_ != nullptr) {
    phx_session_options options = {};
    options.task = parameters.task.c_str();
    options.world = parameters.world;
    options.result_copies = parameters.result_copies;
    options.local_copies = parameters.local_copies;
    options.peer_timeout = parameters.peer_timeout_ns;
    engine->session_ = client.session_join(engine->connection_, &options);
  }
  if (engine->session_ != nullptr) return engine;
  *wrong = client.error();
  return nullptr;
}

SessionEngine::~SessionEngine() {
  if (session_ != nullptr) client_.session_free(session_);
  if (connection_ != nullptr) client_.client_free(connection_);
}

Error SessionEngine::Ended(int code) {
  guard_.Rethrow();
  return code == 0 ? "" : client_.error();
}

Error SessionEngine::Made(int code) {
  // One that was not made, because `prepare` has thrown, can be made later, from the same place.
  if (code == 0 && !place_.empty()) ++calls_[place_];
  return Ended(code);
}

const char* SessionEngine::NameOf(const library::Where& where) {
  place_.clear();
  // All calls of C come from one place, which is no name.
  if (!boot_by_caller_ || loaded_ || where.line < 1) return nullptr;
  place_ = std::string(where.file) + ":" + std::to_string(where.line) + ":" +
           std::string(where.function);
  name_ = place_ + "#" + std::to_string(calls_[place_] + 1);
  return name_.c_str();
}

Error SessionEngine::Print(const std::string& text) {
  return Ended(client_.session_print(session_, text.data(), text.size()));
}

Error SessionEngine::Allreduce(void* inout, size_t count, int type, int op, Preparation preparation,
                               const library::Where& where) {
  PrepareCall prepare{preparation, &guard_};
  return Made(client_.session_allreduce(session_, TypeOf(type), inout, count * SizeOf(type),
                                        OpOf(op), prepare.function(), &prepare, NameOf(where)));
}

Error SessionEngine::AllreduceBy(void* inout, size_t element, size_t count, library::Reduce* reduce,
                                 Preparation preparation, const library::Where& where) {
  PrepareCall prepare{preparation, &guard_};
  FoldCall fold{reduce, element, &guard_};
  return Made(client_.session_allreduce_by(session_, inout, count * element, element,
                                           FoldCall::Fold, &fold, prepare.function(), &prepare,
                                           NameOf(where)));
}

Error SessionEngine::Broadcast(void* inout, size_t size, int root, const library::Where& where) {
  return Made(client_.session_broadcast(session_, inout, size, root, NameOf(where)));
}

Error SessionEngine::Allgather(void* inout, size_t total, size_t begin, size_t size,
                               const library::Where& where) {
  if (begin > total || size > total - begin) return "Allgather: the part is not within the whole";
  struct Target {
    void* memory;
    size_t total;
    uint64_t all;
  } target = {inout, total, 0};
  const auto place = [](void* to, uint64_t all) {
    auto* const target = static_cast<Target*>(to);
    target->all = all;
    return all == target->total ? target->memory : nullptr;
  };
  // The parts of all come to `inout`, so this one is copied before.
  const std::string part(static_cast<const char*>(inout) + begin, size);
  std::vector<uint64_t> offsets(static_cast<size_t>(world()) + 1);
  const int code = client_.session_allgather(session_, part.data(), part.size(), 1, place, &target,
                                             offsets.data(), NameOf(where));
  const Error error = Made(code);
  // The session only knows that there was no memory for the parts.
  if (code != 0 && target.all != 0 && target.all != total) {
    return "Allgather: the parts of all ranks have " + std::to_string(target.all) +
           " bytes together, but the whole has " + std::to_string(total);
  }
  if (code != 0) return error;
  if (offsets[static_cast<size_t>(rank())] == begin) return "";
  return "Allgather: the part of rank " + std::to_string(rank()) + " begins at byte " +
         std::to_string(begin) + ", but the ranks before it have " +
         std::to_string(offsets[static_cast<size_t>(rank())]) + " bytes";
}

Error SessionEngine::CheckLocal(bool with_local) {
  if (with_local == with_local_) return "";
  return with_local
             ? "CheckPoint: a local model, but LoadCheckPoint or checkpoints before had none"
             : "CheckPoint: no local model, but LoadCheckPoint or checkpoints before had one";
}

Error SessionEngine::Load(const library::Loaded& global, const library::Loaded& local,
                          int* version) {
  if (loaded_) {
    return "LoadCheckPoint: it was called before, or a checkpoint was written; a rank calls it "
           "once, "
           "in the beginning";
  }
  TakeCall take{global, local, &guard_};
  uint64_t loaded = 0;
  const bool with_local = local.model != nullptr;
  const int code =
      client_.session_load(session_, with_local ? 1 : 0, TakeCall::Take, &take, &loaded);
  // A model that cannot be loaded can be loaded again.
  const Error error = Ended(code);
  if (code != 0) return error;
  loaded_ = true;
  with_local_ = with_local;
  *version = static_cast<int>(loaded);
  return "";
}

Error SessionEngine::LoadBeforeCheckPoint(bool with_local) {
  if (loaded_) return CheckLocal(with_local);
  // A version to load means that this rank has lost what it had.
  bool there = false;
  const auto take = [](void* to, const void*, uint64_t, const void*, uint64_t) {
    *static_cast<bool*>(to) = true;
    return 1;
  };
  uint64_t version = 0;
  const int code = client_.session_load(session_, with_local ? 1 : 0, take, &there, &version);
  if (there) {
    return "CheckPoint: this rank was started again, but the program has not called "
           "LoadCheckPoint, "
           "which goes on from the checkpoint that there is";
  }
  if (code != 0) return Ended(code);
  loaded_ = true;
  with_local_ = with_local;
  return "";
}

Error SessionEngine::CheckPoint(const library::Saved& global, const library::Saved& local) {
  const bool with_local = local.model != nullptr;
  const Error error = LoadBeforeCheckPoint(with_local);
  if (!error.empty()) return error;
  const std::string bytes = BytesOf(global);
  const std::string local_bytes = with_local ? BytesOf(local) : "";
  const Error ended = Ended(client_.session_checkpoint(session_, bytes.data(), bytes.size(),
                                                       with_local ? local_bytes.data() : nullptr,
                                                       local_bytes.size()));
  // The session may use the lazy model of the version before until now.
  if (ended.empty()) lazy_.reset();
  return ended;
}

int SessionEngine::LazyModel::Save(void* self, const void** bytes, uint64_t* size) {
  auto* const lazy = static_cast<LazyModel*>(self);
  const int failed = lazy->guard->Run([lazy] { lazy->bytes = BytesOf(lazy->model); });
  *bytes = lazy->bytes.data();
  *size = lazy->bytes.size();
  return failed;
}

Error SessionEngine::LazyCheckPoint(const library::Saved& global) {
  Error error = LoadBeforeCheckPoint(false);
  if (!error.empty()) return error;
  // Until the call has ended the session can use the model of the version before.
  auto next = std::make_unique<LazyModel>(LazyModel{global, &guard_, ""});
  error = Ended(client_.session_lazy_checkpoint(session_, LazyModel::Save, next.get()));
  if (error.empty()) lazy_ = std::move(next);
  return error;
}

Error SessionEngine::Leave() { return Ended(client_.session_leave(session_)); }

void SessionEngine::Die(const std::string& death) {
  // SIGKILL drops what is not written.
  std::fflush(nullptr);
  client_.session_die(session_, death.c_str());
}

}  // namespace phalanx::rabit
