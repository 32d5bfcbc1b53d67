// The functions of rabit/c_api.h.

#include "rabit/c_api.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "rabit/rabit.h"
#include "src/common/threads/per_thread.h"
#include "src/rabit/engine.h"

namespace {

namespace engine = rabit::engine;
namespace library = rabit::engine::library;

// All calls from another language come from one place.
constexpr library::Where kNowhere = {"c_api", 0, ""};

// A model that is bytes already.
struct Bytes {
  const char* data;
  size_t size;

  static void Save(const void* self, library::Put* put, void* to) {
    const auto* const bytes = static_cast<const Bytes*>(self);
    put(to, bytes->data, bytes->size);
  }
};

void LoadBytes(void* to, const void* bytes, size_t size) {
  static_cast<std::string*>(to)->assign(static_cast<const char*>(bytes), size);
}

// Until the next call of this thread, as the header says.
struct LoadedModels {
  std::string global;
  std::string local;
};

// The memory stays the library's.
void Return(std::string& model, char** out, rbt_ulong* size) {
  *out = rabit::BeginPtr(model);
  *size = model.size();
}

}  // namespace

bool RabitInit(int argc, char* argv[]) { return rabit::Init(argc, argv); }
bool RabitFinalize(void) { return rabit::Finalize(); }
int RabitGetRank(void) { return rabit::GetRank(); }
int RabitGetWorldSize(void) { return rabit::GetWorldSize(); }
int RabitGetRingPrevRank(void) { return rabit::GetRingPrevRank(); }
int RabitIsDistributed(void) { return rabit::IsDistributed() ? 1 : 0; }
void RabitTrackerPrint(const char* text) { rabit::TrackerPrint(text); }

void RabitGetProcessorName(char* out_name, rbt_ulong* out_len, rbt_ulong max_len) {
  const std::string name = rabit::GetProcessorName();
  *out_len = max_len == 0 ? 0 : std::min<rbt_ulong>(name.size(), max_len - 1);
  if (max_len == 0) return;
  std::memcpy(out_name, name.data(), *out_len);
  out_name[*out_len] = '\0';
}

void RabitBroadcast(void* inout, rbt_ulong size, int root) {
  library::End(library::Broadcast(inout, size, root, kNowhere));
}

void RabitAllgather(void* inout, size_t total_size, size_t begin, size_t size_slice,
                    size_t /*size_prev_slice*/, int enum_dtype) {
  // The engine counts bytes.
  const size_t element = phalanx::rabit::SizeOf(enum_dtype);
  rabit::utils::Check(element != 0, "rabit: Allgather: %d is no type", enum_dtype);
  library::End(library::Allgather(inout, total_size * element, begin * element,
                                  size_slice * element, kNowhere));
}

void RabitAllreduce(void* inout, size_t count, int enum_dtype, int enum_op,
                    void (*prepare_fun)(void* arg), void* prepare_arg) {
  library::End(
      library::Allreduce(inout, count, enum_dtype, enum_op, prepare_fun, prepare_arg, kNowhere));
}

int RabitLoadCheckPoint(char** out_global_model, rbt_ulong* out_global_len, char** out_local_model,
                        rbt_ulong* out_local_len) {
  auto& [global, local] = phalanx::PerThread<LoadedModels>();
  global.clear();
  local.clear();
  const bool with_local = out_local_model != nullptr;
  int version = 0;
  library::End(
      library::Load({&global, LoadBytes}, {with_local ? &local : nullptr, LoadBytes}, &version));
  Return(global, out_global_model, out_global_len);
  if (with_local) Return(local, out_local_model, out_local_len);
  return version;
}

void RabitCheckPoint(const char* global_model, rbt_ulong global_len, const char* local_model,
                     rbt_ulong local_len) {
  const Bytes global{global_model, global_len};
  const Bytes local{local_model, local_len};
  library::End(library::CheckPoint({&global, Bytes::Save},
                                   {local_model != nullptr ? &local : nullptr, Bytes::Save}));
}

int RabitVersionNumber(void) { return rabit::VersionNumber(); }
int RabitLinkTag(void) { return 0; }
