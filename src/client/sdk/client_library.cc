#include "src/client/sdk/client_library.h"

#include <cstdlib>

#include "src/common/release.h"

namespace phalanx::internal {
namespace {

// libphalanx.so.0.1: a minor release can change the interface before 1.0.
std::string LibraryName() {
  const std::string release = kRelease;
  return "libphalanx.so." + release.substr(0, release.rfind('.'));
}

// With its slash; empty if it is not known.
std::string OwnFolder() {
  // Of librabit.so, or of the program or library that contains librabit.a.
  Dl_info own = {};
  if (dladdr(reinterpret_cast<const void*>(&OpenClientLibrary), &own) == 0) return "";
  const std::string file = own.dli_fname == nullptr ? "" : own.dli_fname;
  return file.substr(0, file.rfind('/') + 1);
}

}  // namespace

// RTLD_LOCAL: the library can be in the process in another version, that of a Python package.
void* OpenClientLibrary(std::string* wrong) {
  const char* const given = std::getenv("PHALANX_LIBRARY");
  if (given != nullptr && *given != '\0') {
    void* const library = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) *wrong = std::string("PHALANX_LIBRARY: ") + dlerror();
    return library;
  }
  const std::string folder = OwnFolder();
  if (!folder.empty()) {
    void* const library = dlopen((folder + LibraryName()).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
  }
  void* const library = dlopen(LibraryName().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *wrong = std::string(dlerror()) + ": set LD_LIBRARY_PATH to the folder of " + LibraryName() +
             ", link the program with -Wl,-rpath,FOLDER, or set PHALANX_LIBRARY to the file";
  }
  return library;
}

}  // namespace phalanx::internal
