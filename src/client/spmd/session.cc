#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/job.h"
#include "phalanx/spmd.h"
#include "src/client/access.h"
#include "src/client/spmd/session_state.h"
#include "src/common/io/whole_file.h"
#include "src/common/status_macros.h"
#include "src/jobs/group/group_call.h"

namespace phalanx::spmd {
namespace {

constexpr int kMaxLocalCopies = 15;

// What the ranks tell each other before data whose sizes they do not know.
struct Sizes {
  uint64_t bytes = 0;
  uint64_t element = 0;
};

// Of a call whose sizes are kept, while its data are not.
absl::Status CheckOwn(uint64_t own, uint64_t kept) {
  if (own == kept) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a repeated call of another size: ", own,
                                                 " bytes, and ", kept, " in the life before"));
}

}  // namespace

absl::StatusOr<Session> Session::Join(Client& client, Options options) {
  constexpr int kMost = jobs::kMaxRetainedCopies;
  if (options.result_copies < 1 || options.result_copies > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("result_copies is ", options.result_copies, "; it is 1 to ", kMost));
  }
  if (options.local_copies < 1 || options.local_copies > kMaxLocalCopies) {
    return absl::InvalidArgumentError(
        absl::StrCat("local_copies is ", options.local_copies, "; it is 1 to ", kMaxLocalCopies));
  }
  if (options.checkpoint_dir.empty()) {
    const char* const directory = std::getenv("PHALANX_CHECKPOINT_DIR");
    if (directory != nullptr) options.checkpoint_dir = directory;
  }
  if (!options.checkpoint_dir.empty()) {
    PHALANX_RETURN_IF_ERROR(CheckDirectory(options.checkpoint_dir));
  }
  JoinOptions join;
  join.world = options.world;
  join.role = options.role;
  join.timeout = std::min(join.timeout, options.peer_timeout);
  PHALANX_ASSIGN_OR_RETURN(Membership member, client.Join(options.job, options.task, join));
  auto state = std::make_unique<internal::SessionState>(client.shared_from_this(),
                                                        std::move(member), options);
  PHALANX_RETURN_IF_ERROR(state->Begin());
  return Session(std::move(state));
}

Session::Session(std::unique_ptr<internal::SessionState> state) : state_(std::move(state)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

int Session::rank() const { return state_->member().rank(); }
int Session::world() const { return state_->member().world(); }
uint64_t Session::life() const { return state_->member().life(); }
uint64_t Session::version() const { return state_->core().version(); }
uint64_t Session::seq() const { return state_->seq(); }
Stats Session::stats() const { return state_->stats(); }

absl::Status Session::Allreduce(DType dtype, void* inout, uint64_t bytes, ReduceOp op,
                                const Prepare& prepare, absl::string_view name) {
  return state_->Run("Allreduce", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(CheckReducible(dtype, op));
    PHALANX_RETURN_IF_ERROR(CountElements(dtype, bytes).status());
    if (bytes > 0) {
      PHALANX_RETURN_IF_ERROR(state_->Call(
          {internal::kNeedsAll, name, &prepare}, inout, bytes,
          [&](const Group& group) { return group.AllReduce(dtype, inout, bytes, op); }));
    }
    state_->CountCall();
    return absl::OkStatus();
  });
}

absl::Status Session::Broadcast(void* inout, uint64_t bytes, int root, absl::string_view name) {
  return state_->Run("Broadcast", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(state_->CheckRoot(root));
    if (bytes > 0) {
      PHALANX_RETURN_IF_ERROR(
          state_->Call({internal::kNeedsRoot, name}, inout, bytes,
                       [&](const Group& group) { return group.Broadcast(root, inout, bytes); }));
    }
    state_->CountCall();
    return absl::OkStatus();
  });
}

absl::Status Session::Broadcast(std::string* inout, int root, absl::string_view name) {
  return BroadcastSized(
      inout->size(), 1, root,
      [inout](uint64_t bytes) {
        inout->resize(bytes);
        return static_cast<void*>(inout->data());
      },
      name);
}

absl::Status Session::BroadcastSized(uint64_t bytes, uint64_t element, int root, Place place,
                                     absl::string_view name) {
  return state_->Run("Broadcast", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(state_->CheckRoot(root));
    Sizes sizes{bytes, element};
    PHALANX_RETURN_IF_ERROR(state_->Call(
        {internal::kNeedsRoot, name}, &sizes, sizeof(sizes),
        [&](const Group& group) { return group.Broadcast(root, &sizes, sizeof(sizes)); }));
    if (sizes.element != element) {
      return state_->End(absl::InvalidArgumentError(
          absl::StrCat("elements of ", element, " bytes here, and of ", sizes.element,
                       " bytes at the root, rank ", root)));
    }
    PHALANX_RETURN_IF_ERROR(state_->CheckBytes(sizes.bytes));
    if (rank() == root && sizes.bytes > 0 && !state_->core().repeats()) {
      PHALANX_RETURN_IF_ERROR(state_->End(CheckOwn(bytes, sizes.bytes)));
    }
    void* const data = place(sizes.bytes);
    PHALANX_RETURN_IF_ERROR(state_->CheckPlace(data, sizes.bytes));
    if (sizes.bytes > 0) {
      PHALANX_RETURN_IF_ERROR(state_->Call(
          {internal::kNeedsRoot, name}, data, sizes.bytes,
          [&](const Group& group) { return group.Broadcast(root, data, sizes.bytes); }));
    }
    state_->CountCall();
    return absl::OkStatus();
  });
}

// Parts of different sizes are put in their places among zeros.
absl::StatusOr<std::vector<uint64_t>> Session::AllgatherSized(const void* input, uint64_t bytes,
                                                              uint64_t element, Place place,
                                                              absl::string_view name) {
  std::vector<uint64_t> begins = {0};
  const absl::Status status = state_->Run("Allgather", [&]() -> absl::Status {
    const Sizes mine{bytes, element};
    std::vector<Sizes> sizes(static_cast<size_t>(world()));
    PHALANX_RETURN_IF_ERROR(state_->Call({internal::kNeedsAll, name}, sizes.data(),
                                         sizes.size() * sizeof(mine), [&](const Group& group) {
                                           return group.AllGather(&mine, sizeof(mine), sizes.data(),
                                                                  sizes.size() * sizeof(mine));
                                         }));
    bool alike = true;
    for (const Sizes& each : sizes) {
      const size_t rank = begins.size() - 1;
      if (each.element != element) {
        return state_->End(
            absl::InvalidArgumentError(absl::StrCat("elements of ", element, " bytes here, and of ",
                                                    each.element, " bytes at rank ", rank)));
      }
      alike &= each.bytes == bytes;
      PHALANX_RETURN_IF_ERROR(state_->CheckBytes(std::max(each.bytes, begins.back())));
      begins.push_back(begins.back() + each.bytes);
    }
    const uint64_t all = begins.back();
    PHALANX_RETURN_IF_ERROR(state_->CheckBytes(all));
    if (all > 0 && !state_->core().repeats()) {
      const uint64_t kept = sizes[static_cast<size_t>(rank())].bytes;
      PHALANX_RETURN_IF_ERROR(state_->End(CheckOwn(bytes, kept)));
    }
    char* const output = static_cast<char*>(place(all));
    PHALANX_RETURN_IF_ERROR(state_->CheckPlace(output, all));
    if (all > 0 && alike) {
      PHALANX_RETURN_IF_ERROR(state_->Call(
          {internal::kNeedsAll, name}, output, all,
          [&](const Group& group) { return group.AllGather(input, bytes, output, all); }));
    } else if (all > 0) {
      PHALANX_RETURN_IF_ERROR(
          state_->Call({internal::kNeedsAll, name}, output, all, [&](const Group& group) {
            const uint64_t begin = begins[static_cast<size_t>(rank())];
            std::memset(output, 0, begin);
            if (bytes > 0) std::memcpy(output + begin, input, bytes);
            std::memset(output + begin + bytes, 0, all - begin - bytes);
            return group.AllReduce(DType::kU8, output, all, ReduceOp::kBitOr);
          }));
    }
    state_->CountCall();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return begins;
}

absl::Status Session::Barrier(absl::string_view name) {
  return state_->Run("Barrier", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(state_->Call({internal::kNeedsAll, name}, nullptr, 0,
                                         [](const Group& group) { return group.Barrier(); }));
    state_->CountCall();
    return absl::OkStatus();
  });
}

absl::StatusOr<uint64_t> Session::LoadBytes(Take take) {
  uint64_t version = 0;
  const absl::Status status = state_->RunAlone("Load", [&]() -> absl::Status {
    PHALANX_ASSIGN_OR_RETURN(version, state_->Load(take));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return version;
}

absl::StatusOr<uint64_t> Session::LoadBytes(TakeBoth take) {
  uint64_t version = 0;
  const absl::Status status = state_->RunAlone("Load", [&]() -> absl::Status {
    PHALANX_ASSIGN_OR_RETURN(version, state_->LoadBoth(take));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return version;
}

absl::Status Session::CheckpointBytes(absl::string_view bytes, absl::string_view local) {
  return state_->RunAlone("Checkpoint", [&] { return state_->CheckpointBoth(bytes, local); });
}

absl::Status Session::CheckpointBytes(absl::string_view bytes) {
  return state_->RunAlone("Checkpoint", [&] { return state_->Checkpoint(bytes); });
}

absl::Status Session::LazyCheckpointBytes(std::function<std::string()> save) {
  return state_->RunAlone("LazyCheckpoint",
                          [&] { return state_->LazyCheckpoint(std::move(save)); });
}

absl::Status Session::Print(absl::string_view text) {
  return state_->Run("Print", [&] { return state_->member().Print(text); });
}

absl::Status Session::Leave() {
  return state_->RunAlone("Leave", [&] { return state_->Leave(); });
}

}  // namespace phalanx::spmd

void phalanx::internal::Access::Die(const spmd::Session& session, absl::string_view death) {
  Die(session.state_->member(), death);
}
