#include "src/rabit/client_functions.h"

#include "src/client/sdk/client_library.h"

namespace phalanx::rabit {
namespace {

struct Loaded {
  ClientFunctions functions;
  std::string wrong;

  Loaded() {
    void* const library = internal::OpenClientLibrary(&wrong);
    if (library == nullptr) return;
#define PHALANX_RABIT_FIND(name) \
  internal::FindFunction(library, "phx_" #name, &functions.name, &wrong);
    PHALANX_RABIT_CLIENT_FUNCTIONS(PHALANX_RABIT_FIND)
#undef PHALANX_RABIT_FIND
  }
};

}  // namespace

std::string LoadClientFunctions(const ClientFunctions** functions) {
  // Never unloaded: its threads and those of the program can outlive main.
  static const Loaded* const loaded = new Loaded;
  *functions = &loaded->functions;
  return loaded->wrong;
}

}  // namespace phalanx::rabit
