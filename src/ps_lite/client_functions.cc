#include "src/ps_lite/client_functions.h"

#include "src/client/sdk/client_library.h"

namespace phalanx::ps_lite {
namespace {

struct Loaded {
  ClientFunctions functions;
  std::string wrong;

  Loaded() {
    void* const library = internal::OpenClientLibrary(&wrong);
    if (library == nullptr) return;
#define PHALANX_PS_LITE_FIND(name) \
  internal::FindFunction(library, "phx_" #name, &functions.name, &wrong);
    PHALANX_PS_LITE_CLIENT_FUNCTIONS(PHALANX_PS_LITE_FIND)
#undef PHALANX_PS_LITE_FIND
  }
};

}  // namespace

std::string LoadClientFunctions(const ClientFunctions** functions) {
  // Never unloaded: its threads and those of the program can outlive main.
  static const Loaded* const loaded = new Loaded;
  *functions = &loaded->functions;
  return loaded->wrong;
}

}  // namespace phalanx::ps_lite
