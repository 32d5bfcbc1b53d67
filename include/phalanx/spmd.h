// Sessions: programs of many ranks that survive the deaths of some. docs/jobs.md, "Sessions",
// explains what a next life repeats.
//
//   auto session = phalanx::spmd::Session::Join(*client, {.world = 8}).value();
//   MyModel model;                                      // has Save and Load
//   session.Load(model).value();                        // 0: a new model; else the version
//   while (session.version() < 100) {
//     std::vector<float> sum(n);
//     status = session.Allreduce(absl::MakeSpan(sum), ReduceOp::kSum, [&] { Compute(&sum); });
//     if (!status.ok()) return status;
//     model.Apply(sum);
//     status = session.Checkpoint(model);
//     if (!status.ok()) return status;
//   }
//   return session.Leave();
//
// All ranks run the same program: they make the same calls in the same order, and load and write
// their checkpoints between the same calls. A rank whose process dies is started again (by `phalanx
// launch --restarts`). It runs the program from the newest checkpoint that all ranks have written,
// as a call after it shows, and is given the results of the calls since; the other ranks wait in
// the next call meanwhile. All ranks get the same bits in every life.
//
// A session that has failed is over: a call returns the error with which another one has ended,
// which names job, rank, version and seq. The process can end, and be started again. (Arguments
// that are refused at once, and errors of Load and Checkpoint, do not end it.) No call exits the
// process. If a call has failed on all ranks, it fails in later lives, too, until all members of
// the job have ended.
//
// A Session belongs to its rank. There is no global state: the ranks can be threads of one process,
// each with a Client of its own. One thread at a time; the calls, Load, Checkpoint and Leave return
// FailedPrecondition while another one is under way, and in a child of fork.
#ifndef PHALANX_SPMD_H_
#define PHALANX_SPMD_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/elements.h"
#include "phalanx/group.h"

namespace phalanx::spmd {

namespace internal {
class SessionState;
}  // namespace internal

struct Options {
  // Empty or 0: PHALANX_JOB, PHALANX_TASK, PHALANX_WORLD and PHALANX_ROLE, which `phalanx launch`
  // sets; the role is "worker" if that is not set.
  std::string job = {};
  std::string task = {};
  int world = 0;
  std::string role = {};
  // On so many hosts the result of each call is kept, 1 to 16; on all, if these are fewer. A host
  // loses what it has when it ends, and when its last rank dies.
  int result_copies = 2;
  // On so many hosts other than the rank's each local model is kept, 1 to 15; on all, if these are
  // fewer.
  int local_copies = 2;
  // How long a call waits for the other ranks: for those that are slow, and for the next lives of
  // those that have died. Then it fails with DeadlineExceeded, which names them.
  absl::Duration peer_timeout = absl::Minutes(5);
  // If it is not empty, checkpoints are written into this directory as well, lazy ones too, and a
  // job whose ranks have all died goes on from there when it begins anew: from the newest version
  // of its last run that any rank has, or with local models from the newest one that all have. Each
  // rank reads what it has written itself, and global models of any rank whose files it sees. All
  // ranks have one, or none; it exists. Empty: PHALANX_CHECKPOINT_DIR, else none.
  std::string checkpoint_dir = {};
};

// Of this life. Calls are those of the group: Join makes one, Allgather and a Broadcast of a string
// or a vector two each, AllreduceBy and AllreduceModel one to three. Before Load, from the first
// name on, each call has one more, and so has Load.
struct Stats {
  uint64_t repeated = 0;          // calls whose results were kept
  uint64_t made = 0;              // calls with the other ranks
  uint64_t prepared = 0;          // calls of `prepare`
  uint64_t checkpoint_bytes = 0;  // written
  // From Join to the first call with the other ranks, in a life after the first one.
  absl::Duration recovery = absl::ZeroDuration();
};

// What a rank restores after its death. A std::string is one, too.
template <typename M>
concept Model = std::is_same_v<M, std::string> ||
    requires(M& model, const M& saved, absl::string_view bytes) {
  { saved.Save() } -> std::convertible_to<std::string>;
  { model.Load(bytes) } -> std::same_as<absl::Status>;
};

// Fills the vector of an Allreduce with this rank's input.
using Prepare = std::function<void()>;

// into[i] becomes the fold of into[i] and from[i], elements of one type: into[i] is of lower ranks.
// `from` is aligned as by malloc, `into` as the vector is.
using FoldElements = absl::FunctionRef<void(void* into, const void* from, uint64_t count)>;
// What AllreduceModel folds: this rank's value.
struct ModelFold {
  absl::FunctionRef<std::string()> save;
  // The value becomes the fold of itself and another one, of higher ranks.
  absl::FunctionRef<absl::Status(absl::string_view bytes)> add;
  absl::FunctionRef<absl::Status(absl::string_view bytes)> load;
};

class Session {
 public:
  // Joins the job as Client::Join does. In its first life it waits for all ranks, within
  // peer_timeout; in a later one for the nodes, which agree on the calls that have ended. Errors:
  // those of Client::Join, DeadlineExceeded (names the ranks that have not come).
  static absl::StatusOr<Session> Join(Client& client, Options options = {});
  // Without Leave, the other ranks see that this one has died, and wait for its next life. Calls
  // under way end with Cancelled: they write nothing any more.
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  int rank() const;
  int world() const;
  uint64_t life() const;
  // The number of checkpoints so far, and of the calls since the last one. Before Load: 0, and the
  // calls so far.
  uint64_t version() const;
  uint64_t seq() const;
  Stats stats() const;

  // ---- calls. Without elements or bytes they transfer nothing, and wait for nothing. Errors of
  // all: InvalidArgument (arguments that are refused at once; or ranks that differ in a call, then
  // on all of them; or a repeated call of another size), DeadlineExceeded (peer_timeout), NotFound
  // (a result that this life has to repeat is not kept any more), Aborted (a next life of this rank
  // has joined), ResourceExhausted, Unavailable.

  // Every rank's span becomes the fold of all ranks' spans. `prepare`, if there is one, is called
  // before that, once, but not if the result is kept: then no input is needed. So it must do
  // nothing else. A span that is empty on one rank is empty on all.
  //
  // `name`, here and below, is for calls before Load: a next life that makes them in another order,
  // or leaves some out, gets the result of the call with this name. All ranks give the same name.
  // The names of one life differ. With names Load waits for all ranks. After Load a name has no
  // effect.
  template <typename T>
  absl::Status Allreduce(absl::Span<T> inout, ReduceOp op = ReduceOp::kSum,
                         const Prepare& prepare = nullptr, absl::string_view name = {}) {
    return Allreduce(DTypeOf<T>(), inout.data(), inout.size() * sizeof(T), op, prepare, name);
  }
  absl::Status Allreduce(DType dtype, void* inout, uint64_t bytes, ReduceOp op,
                         const Prepare& prepare = nullptr, absl::string_view name = {});
  // Returns when the call is made: the result comes to `inout` when the future has one, after those
  // of earlier calls. Other calls can be made meanwhile, and end after it; so do Load, Checkpoint
  // and Leave. Waits for the oldest of 256 such calls. Writes a lazy checkpoint before; if that
  // fails, the call is not made. Else an error ends the session, and the futures of later calls.
  // `inout` has to be there until the future has ended, or the session.
  template <typename T>
  Future<Done> AllreduceAsync(absl::Span<T> inout, ReduceOp op = ReduceOp::kSum,
                              const Prepare& prepare = nullptr, absl::string_view name = {}) {
    return AllreduceAsync(DTypeOf<T>(), inout.data(), inout.size() * sizeof(T), op, prepare, name);
  }
  Future<Done> AllreduceAsync(DType dtype, void* inout, uint64_t bytes, ReduceOp op,
                              const Prepare& prepare = nullptr, absl::string_view name = {});
  // With a function of the program: fold(T& into, const T& from), associative; `into` is of lower
  // ranks than `from`. It is called in this thread, for the vectors of all ranks if they have
  // 256 KiB together, and else along a tree of the ranks. After an error, `inout` can be the fold
  // of some ranks' vectors. If `fold` throws along the tree, the session of this rank is over, and
  // the others wait for its next life.
  template <typename T, typename F>
  absl::Status AllreduceBy(absl::Span<T> inout, F fold, const Prepare& prepare = nullptr,
                           absl::string_view name = {});
  absl::Status AllreduceBy(void* inout, uint64_t bytes, uint64_t element, FoldElements fold,
                           const Prepare& prepare = nullptr, absl::string_view name = {});
  // The same for values of any size: fold(M& into, const M& from). An error of Load or of ModelFold
  // is that of the call on all ranks. If `fold` throws, the session of this rank is over.
  template <Model M, typename F>
  absl::Status AllreduceModel(M& inout, F fold, const Prepare& prepare = nullptr,
                              absl::string_view name = {});
  absl::Status AllreduceModel(const ModelFold& fold, const Prepare& prepare = nullptr,
                              absl::string_view name = {});
  // Every rank's bytes become the root's. The size is the same for all.
  absl::Status Broadcast(void* inout, uint64_t bytes, int root, absl::string_view name = {});
  // The same for strings and vectors of plain data, whose sizes become the root's.
  absl::Status Broadcast(std::string* inout, int root, absl::string_view name = {});
  template <typename T>
  absl::Status Broadcast(std::vector<T>* inout, int root, absl::string_view name = {});
  // `place` returns memory for so many bytes; at the root, that of its own bytes. Null:
  // ResourceExhausted, and the session is over.
  using Place = absl::FunctionRef<void*(uint64_t bytes)>;
  absl::Status BroadcastSized(uint64_t bytes, uint64_t element, int root, Place place,
                              absl::string_view name = {});
  // Returns the elements of all ranks in the order of ranks; any number of each. `offsets` becomes
  // where each rank's elements begin, and the end of the last one's.
  template <typename T>
  absl::StatusOr<std::vector<T>> Allgather(absl::Span<const T> input,
                                           std::vector<size_t>* offsets = nullptr,
                                           absl::string_view name = {});
  // The same for elements of so many bytes. Returns the offsets in bytes.
  absl::StatusOr<std::vector<uint64_t>> AllgatherSized(const void* input, uint64_t bytes,
                                                       uint64_t element, Place place,
                                                       absl::string_view name = {});
  // Ends when all ranks have called.
  absl::Status Barrier(absl::string_view name = {});

  // ---- checkpoints
  // Called once in each life, before the first Checkpoint: restores the model as it was at the
  // checkpoint from which this life goes on, and returns its version. 0: there is none, and the
  // model is as it was. Calls before Load are repeated in every life, so their results are kept as
  // long as the job lives. Waits up to peer_timeout for a rank with the checkpoint. After an error
  // it can be called again.
  template <Model M>
  absl::StatusOr<uint64_t> Load(M& model) {
    return LoadBytes([&model](absl::string_view bytes) { return LoadModel(model, bytes); });
  }
  // With local models, which differ from rank to rank: restores both of one version, the newest of
  // which this rank's local model is there. A program has local models in all of its versions or in
  // none, on all ranks.
  template <Model M, Model L>
  absl::StatusOr<uint64_t> Load(M& model, L& local) {
    return LoadBytes([&model, &local](absl::string_view bytes, absl::string_view local_bytes) {
      const absl::Status status = LoadModel(model, bytes);
      return status.ok() ? LoadModel(local, local_bytes) : status;
    });
  }
  using Take = absl::FunctionRef<absl::Status(absl::string_view bytes)>;
  absl::StatusOr<uint64_t> LoadBytes(Take take);
  using TakeBoth =
      absl::FunctionRef<absl::Status(absl::string_view bytes, absl::string_view local)>;
  absl::StatusOr<uint64_t> LoadBytes(TakeBoth take);
  // Writes the model, the same on all ranks, as that of the next version, on this rank's node. It
  // waits for no other rank. Results before it and this rank's checkpoint before it are freed once
  // all ranks have written theirs, which a later call shows. After an error the version is as it
  // was, and it can be called again.
  template <Model M>
  absl::Status Checkpoint(const M& model) {
    return CheckpointBytes(SaveModel(model));
  }
  // Writes the local model, too, on this rank's node, and begins to copy it to other hosts
  // (`local_copies`); the next Checkpoint waits for these copies, up to peer_timeout. The two
  // newest versions are kept: a rank that dies with its node goes on from the newest one that has
  // copies. Results are kept for one version more than without local models.
  template <Model M, Model L>
  absl::Status Checkpoint(const M& model, const L& local) {
    return CheckpointBytes(SaveModel(model), SaveModel(local));
  }
  absl::Status CheckpointBytes(absl::string_view bytes);
  absl::Status CheckpointBytes(absl::string_view bytes, absl::string_view local);
  // Writes nothing: the model is saved within a call of this version, in this thread, if a rank has
  // died and may need it, and not otherwise. So the model stays as it is until the last call before
  // the next checkpoint or Leave has ended, and its memory until then, too; no call writes its
  // result into it. Without a call in which every rank gives something since the checkpoint before
  // it, it is written as by Checkpoint. AllreduceAsync saves it: the program waits elsewhere. What
  // saving throws, the call throws; the session is over then.
  template <Model M>
  absl::Status LazyCheckpoint(const M& model) {
    return LazyCheckpointBytes([&model] { return std::string(SaveModel(model)); });
  }
  template <Model M>
  absl::Status LazyCheckpoint(const M&& model) = delete;
  absl::Status LazyCheckpointBytes(std::function<std::string()> save);

  // Prints the text at the launch (Membership::Print). A next life prints again what comes between
  // calls that it repeats.
  absl::Status Print(absl::string_view text);

  // Waits until all ranks have come here, leaves the job, and frees this rank's checkpoints.
  absl::Status Leave();

 private:
  friend class phalanx::internal::Access;
  explicit Session(std::unique_ptr<internal::SessionState> state);

  template <typename M>
  static absl::Status LoadModel(M& model, absl::string_view bytes) {
    if constexpr (std::is_same_v<M, std::string>) {
      model.assign(bytes.data(), bytes.size());
      return absl::OkStatus();
    } else {
      return model.Load(bytes);
    }
  }
  template <typename M>
  static decltype(auto) SaveModel(const M& model) {
    if constexpr (std::is_same_v<M, std::string>) {
      return (model);
    } else {
      return model.Save();
    }
  }

  std::unique_ptr<internal::SessionState> state_;
};

template <typename T, typename F>
absl::Status Session::AllreduceBy(absl::Span<T> inout, F fold, const Prepare& prepare,
                                  absl::string_view name) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignof(std::max_align_t));
  return AllreduceBy(
      inout.data(), inout.size() * sizeof(T), sizeof(T),
      [&fold](void* into, const void* from, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) {
          fold(static_cast<T*>(into)[i], static_cast<const T*>(from)[i]);
        }
      },
      prepare, name);
}

template <Model M, typename F>
absl::Status Session::AllreduceModel(M& inout, F fold, const Prepare& prepare,
                                     absl::string_view name) {
  return AllreduceModel(
      ModelFold{.save = [&inout] { return std::string(SaveModel(inout)); },
                .add =
                    [&inout, &fold](absl::string_view bytes) {
                      M from;
                      absl::Status status = LoadModel(from, bytes);
                      if (status.ok()) fold(inout, std::as_const(from));
                      return status;
                    },
                .load = [&inout](absl::string_view bytes) { return LoadModel(inout, bytes); }},
      prepare, name);
}

template <typename T>
absl::Status Session::Broadcast(std::vector<T>* inout, int root, absl::string_view name) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
  return BroadcastSized(
      inout->size() * sizeof(T), sizeof(T), root,
      [inout](uint64_t bytes) {
        inout->resize(bytes / sizeof(T));
        return static_cast<void*>(inout->data());
      },
      name);
}

template <typename T>
absl::StatusOr<std::vector<T>> Session::Allgather(absl::Span<const T> input,
                                                  std::vector<size_t>* offsets,
                                                  absl::string_view name) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
  std::vector<T> all;
  absl::StatusOr<std::vector<uint64_t>> begins = AllgatherSized(
      input.data(), input.size() * sizeof(T), sizeof(T),
      [&all](uint64_t bytes) {
        all.resize(bytes / sizeof(T));
        return static_cast<void*>(all.data());
      },
      name);
  if (!begins.ok()) return begins.status();
  if (offsets != nullptr) {
    offsets->clear();
    for (const uint64_t begin : *begins) offsets->push_back(begin / sizeof(T));
  }
  return all;
}

}  // namespace phalanx::spmd

#endif  // PHALANX_SPMD_H_
