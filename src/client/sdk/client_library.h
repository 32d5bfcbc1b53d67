// Loads libphalanx.so into a program that is not linked with it. For the libraries of programs that
// were written for other systems (librabit, libps): these programs are linked with one library.
#ifndef PHALANX_CLIENT_SDK_CLIENT_LIBRARY_H_
#define PHALANX_CLIENT_SDK_CLIENT_LIBRARY_H_

#include <dlfcn.h>

#include <string>

namespace phalanx::internal {

// Returns the library's handle, or null and what was wrong. The library is PHALANX_LIBRARY if that
// is set; else libphalanx.so beside the file that contains this function; else what the dynamic
// linker finds: by the program's run path, LD_LIBRARY_PATH, or in the system's folders. It is never
// unloaded: its threads and those of the program can outlive main.
void* OpenClientLibrary(std::string* wrong);

// Sets `function` to that with this name. The first one that is missing is the error: the library
// is older than this one.
template <typename Function>
void FindFunction(void* library, const char* name, Function** function, std::string* wrong) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function == nullptr && wrong->empty()) *wrong = dlerror();
}

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_SDK_CLIENT_LIBRARY_H_
