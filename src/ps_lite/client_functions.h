// The functions of phalanx/c.h that libps calls. They come from libphalanx.so, which is loaded in
// Start: so a program is linked with libps alone.
#ifndef PHALANX_PS_LITE_CLIENT_FUNCTIONS_H_
#define PHALANX_PS_LITE_CLIENT_FUNCTIONS_H_

#include <string>

#include "phalanx/c.h"

namespace phalanx::ps_lite {

// clang-format off
#define PHALANX_PS_LITE_CLIENT_FUNCTIONS(function) \
  function(error) function(error_code) function(connect) function(close) function(client_free) \
  function(client_address) function(poll) function(join) function(member_life) \
  function(member_list) function(member_wait_change) function(member_send) \
  function(member_receive) function(message_data) function(message_size) function(message_role) \
  function(message_rank) function(message_life) function(message_free) function(member_leave) \
  function(member_free) function(wait) function(call_ended) function(call_free) \
  function(call_notify) function(queue_new) function(queue_take) function(queue_free) \
  function(ps_table_defaults) function(ps_server_join) function(ps_server_add_table) \
  function(ps_server_on_unsaved) function(ps_server_run) function(ps_server_stop) \
  function(ps_server_drop) function(ps_server_finish) function(ps_server_free) \
  function(ps_worker_join) function(ps_worker_open) function(ps_worker_leave) \
  function(ps_worker_quit) function(ps_worker_fail) function(ps_worker_free) \
  function(ps_push_rows) function(ps_pull_rows) function(ps_push_pull_rows) \
  function(ps_table_free)
// clang-format on

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
