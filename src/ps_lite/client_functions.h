// The functions of phalanx/c.h that libps calls. They come from libphalanx.so, which is loaded in
// Start: so a program is linked with libps alone.
#ifndef PHALANX_PS_LITE_CLIENT_FUNCTIONS_H_
#define PHALANX_PS_LITE_CLIENT_FUNCTIONS_H_

#include <string>

#include "phalanx/c.h"

namespace phalanx::ps_lite {

#define PHALANX_PS_LITE_CLIENT_FUNCTIONS(function)                                               \
  function(error) function(error_code) function(connect) function(client_free)                   \
      function(client_address) function(join) function(member_list) function(member_wait_change) \
          function(member_send) function(member_receive) function(message_data)                  \
              function(message_size) function(message_role) function(message_rank)               \
                  function(message_free) function(member_leave) function(member_free)            \
                      function(wait) function(call_ended) function(call_free)

struct ClientFunctions {
#define PHALANX_PS_LITE_FIELD(name) decltype(&::phx_##name) name = nullptr;
  PHALANX_PS_LITE_CLIENT_FUNCTIONS(PHALANX_PS_LITE_FIELD)
#undef PHALANX_PS_LITE_FIELD
};

// Loads the library if this is the first call, and sets `functions`, which stay valid. Returns what
// was wrong.
std::string LoadClientFunctions(const ClientFunctions** functions);

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_CLIENT_FUNCTIONS_H_
