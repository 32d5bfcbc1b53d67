// The functions of phalanx/c.h that librabit calls. They come from libphalanx.so, which is loaded
// when a launched program calls Init: so a program is linked with librabit alone, and runs without
// Phalanx if it is not launched.
#ifndef PHALANX_RABIT_CLIENT_FUNCTIONS_H_
#define PHALANX_RABIT_CLIENT_FUNCTIONS_H_

#include <string>

#include "phalanx/c.h"

namespace phalanx::rabit {

#define PHALANX_RABIT_CLIENT_FUNCTIONS(function)                                               \
  function(error) function(connect) function(client_free) function(session_join)               \
      function(session_rank) function(session_world) function(session_life)                    \
          function(session_version) function(session_allreduce) function(session_allreduce_by) \
              function(session_broadcast) function(session_allgather) function(session_load)   \
                  function(session_checkpoint) function(session_lazy_checkpoint)               \
                      function(session_print) function(session_leave) function(session_free)   \
                          function(session_die)

struct ClientFunctions {
#define PHALANX_RABIT_FIELD(name) decltype(&::phx_##name) name = nullptr;
  PHALANX_RABIT_CLIENT_FUNCTIONS(PHALANX_RABIT_FIELD)
#undef PHALANX_RABIT_FIELD
};

// Loads the library if this is the first call, and sets `functions`, which stay valid. Returns what
// was wrong, empty if nothing was.
std::string LoadClientFunctions(const ClientFunctions** functions);

}  // namespace phalanx::rabit

#endif  // PHALANX_RABIT_CLIENT_FUNCTIONS_H_
