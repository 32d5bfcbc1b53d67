/* Parameter servers as C functions: docs/parameter-server.md, ps.h. A part of c.h, which includes
 * this file and has the rules: errors, threads, times and texts.
 */
#ifndef PHALANX_C_PS_H_
#define PHALANX_C_PS_H_

#include "phalanx/c.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
/* ---- begin ---- */

/* A server: one part of each table. One thread at a time, but phx_ps_server_stop,
 * phx_ps_server_finish and phx_ps_server_barrier. */
typedef struct phx_ps_server phx_ps_server;
/* A worker, and its view of a table. Any thread. */
typedef struct phx_ps_worker phx_ps_worker;
typedef struct phx_ps_table phx_ps_table;

typedef struct {
  const char* job; /* NULL or "": PHALANX_JOB; likewise the task */
  const char* task;
  int world;               /* of the servers, or of the workers; 0: PHALANX_WORLD */
  const char* server_role; /* NULL or "": "server" */
  const char* worker_role; /* NULL or "": "worker" */
  int64_t peer_timeout;    /* of each wait for the others; 0: five minutes */
  /* Of servers; NULL or "": PHALANX_CHECKPOINT_DIR, else none. */
  const char* checkpoint_dir;
  int await_workers; /* of a server: as in ps.h */
} phx_ps_options;

/* Sync, Split, Update, Init and OnLoss of ps_table.h. */
enum { PHX_PS_BSP, PHX_PS_SSP, PHX_PS_ASP };
enum { PHX_PS_SPLIT_RANGE, PHX_PS_SPLIT_HASH, PHX_PS_SPLIT_BLOCKS, PHX_PS_SPLIT_OWN };
enum {
  PHX_PS_ASSIGN,
  PHX_PS_SUM,
  PHX_PS_SGD,
  PHX_PS_MOMENTUM,
  PHX_PS_ADAGRAD,
  PHX_PS_FTRL,
  PHX_PS_OWN
};
enum { PHX_PS_ZEROS, PHX_PS_UNIFORM, PHX_PS_NORMAL };
enum { PHX_PS_LOSS_WAIT, PHX_PS_LOSS_DROP, PHX_PS_LOSS_FAIL };

/* TableSpec of ps_table.h, which says what the fields mean. */
typedef struct {
  const char* name;
  uint64_t keys;
  uint32_t width;
  int lengths; /* not 0: rows have lengths of their own */
  int dtype;   /* PHX_F32, ... */
  int wire;
  int sync; /* PHX_PS_BSP, ... */
  uint32_t staleness;
  int split; /* PHX_PS_SPLIT_RANGE, ... */
  uint64_t block;
  int update; /* PHX_PS_SUM, ... */
  double rate;
  double momentum;
  double epsilon;
  double beta;
  double l1;
  double l2;
  int init; /* PHX_PS_ZEROS, ... */
  double scale;
  uint64_t seed;
  int on_loss; /* PHX_PS_LOSS_WAIT, ... */
  uint32_t snapshot_every;
  uint32_t copies;
  uint64_t snapshot_bytes;
} phx_ps_table_spec;
/* Fills in the defaults of ps_table.h; no name, and no keys. */
void phx_ps_table_defaults(phx_ps_table_spec* spec);

/* BarrierGroup and BarrierOptions of ps_barrier.h. */
enum { PHX_PS_WORKERS, PHX_PS_SERVERS, PHX_PS_ALL };
typedef struct {
  int has_epoch; /* 0: the next barrier of the group */
  uint64_t epoch;
  int64_t timeout; /* 0: peer_timeout */
} phx_ps_barrier_options;

/* What an own update is given. With PHX_PS_BSP a push is the sum of all workers' pushes of a clock,
 * and `worker` is -1. `values` are `count` rows of the table's width; or, if the table has lengths,
 * rows of these lengths. */
typedef struct {
  int worker;
  uint64_t clock;
  uint64_t life;
  const uint64_t* keys;
  const void* values;
  uint64_t count;
  const uint32_t* lengths; /* NULL: the table has none */
} phx_ps_push;
/* The rows of the push's keys at the server. Valid, with the push, during the call. */
typedef struct phx_ps_rows phx_ps_rows;
/* Returns 0, or a code: all calls for the table end with it then, and with the text that was given
 * to phx_ps_rows_error. It is called in the thread of phx_ps_server_run. */
typedef int (*phx_ps_update)(void* argument, const phx_ps_push* push, phx_ps_rows* rows);
/* The elements of the row of a key; makes the row. NULL: this server does not have the key. Valid
 * until the next row is made, or this one is resized. */
void* phx_ps_row(phx_ps_rows* rows, uint64_t key);
/* How many these are: the table's width; or, if the table has lengths, the length of the row, which
 * is 0 when the row was made. 0 as well: this server does not have the key. */
uint32_t phx_ps_row_length(phx_ps_rows* rows, uint64_t key);
/* Of a table with lengths: the elements of the row of a key when the row has got this length; makes
 * the row. Those that it keeps stay, and new ones are 0. NULL, and nothing has changed: this server
 * does not have the key, the length is greater than the table's width, or the table has no lengths.
 */
void* phx_ps_row_resize(phx_ps_rows* rows, uint64_t key, uint32_t length);
/* The lengths of the rows of all keys of the push, in their order. */
void phx_ps_rows_lengths(phx_ps_rows* rows, uint32_t* lengths);
/* Copies the rows of all keys of the push, one after the other in their order, and back: of each
 * row as many elements as it has. */
void phx_ps_rows_read(phx_ps_rows* rows, void* values);
void phx_ps_rows_write(phx_ps_rows* rows, const void* values);
void phx_ps_rows_error(phx_ps_rows* rows, const char* text, size_t size);

typedef struct phx_ps_reply phx_ps_reply;
/* Answers a request by phx_ps_reply_set, and returns 0; or returns a code, and `body` is the text
 * of the error. Without phx_ps_reply_set the answer is empty. A request can come again, also to the
 * server's next life. */
typedef int (*phx_ps_answer)(void* argument, int worker, int32_t head, const void* body,
                             uint64_t size, phx_ps_reply* reply);
/* The bytes are copied. */
void phx_ps_reply_set(phx_ps_reply* reply, int32_t head, const void* body, uint64_t size);

phx_ps_server* phx_ps_server_join(phx_client* client, const phx_ps_options* options);
int phx_ps_server_rank(const phx_ps_server* server);
int phx_ps_server_servers(const phx_ps_server* server);
uint64_t phx_ps_server_life(const phx_ps_server* server);
/* All servers add the same tables in the same order, before phx_ps_server_run. `update` is a
 * function exactly with PHX_PS_OWN. */
int phx_ps_server_add_table(phx_ps_server* server, const phx_ps_table_spec* spec,
                            phx_ps_update update, void* argument);
void phx_ps_server_on_request(phx_ps_server* server, phx_ps_answer answer, void* argument);
/* As Server::OnUnsaved. The texts are valid during the call. */
typedef void (*phx_ps_unsaved)(void* argument, const char* table, const char* why);
void phx_ps_server_on_unsaved(phx_ps_server* server, phx_ps_unsaved unsaved, void* argument);
/* Serves until all workers have left; or until phx_ps_server_stop, with Cancelled (1). Aborted
 * (10): a next life of this server has joined. DeadlineExceeded (4): no worker has lived for
 * peer_timeout, and not all have left. */
int phx_ps_server_run(phx_ps_server* server);
void phx_ps_server_stop(phx_ps_server* server);
/* The same, and frees the snapshots before it. Any thread. */
void phx_ps_server_drop(phx_ps_server* server);
/* phx_ps_server_run waits no more for workers that have not joined, or have died. Any thread. */
void phx_ps_server_finish(phx_ps_server* server);
/* PHX_PS_SERVERS: any time. PHX_PS_ALL ends only while all servers are in phx_ps_server_run. */
phx_call* phx_ps_server_barrier(phx_ps_server* server, int group,
                                const phx_ps_barrier_options* options);
/* Clocks of each table, and which pulls wait for whom. Copies at most `room` bytes of the text, the
 * last of which is zero, and returns its size without that. */
size_t phx_ps_server_describe(const phx_ps_server* server, char* text, size_t room);
/* As phx_member_list; NULL: of the servers. Any thread. */
int64_t phx_ps_server_list(const phx_ps_server* server, const char* role, phx_member_info* infos,
                           size_t n);
/* A server whose phx_ps_server_run has not returned 0 dies. */
void phx_ps_server_free(phx_ps_server* server);

/* Waits for the servers. */
phx_ps_worker* phx_ps_worker_join(phx_client* client, const phx_ps_options* options);
int phx_ps_worker_rank(const phx_ps_worker* worker);
int phx_ps_worker_workers(const phx_ps_worker* worker);
int phx_ps_worker_servers(const phx_ps_worker* worker);
uint64_t phx_ps_worker_life(const phx_ps_worker* worker);
int phx_ps_worker_status(const phx_ps_worker* worker);
/* A table with PHX_PS_SPLIT_OWN needs phx_ps_worker_open_sliced, the others cannot have it. */
phx_ps_table* phx_ps_worker_open(phx_ps_worker* worker, const char* name);
/* Slicer of ps.h, which says what it has to be: writes the rank of the server of each of `n` keys
 * into `servers`, where -1 is before, and returns 0; or a code, and the call is refused, with
 * InvalidArgument (3). It is called in the thread that pushes or pulls, until the table is freed
 * and no call for it is being made. */
typedef int (*phx_ps_slicer)(void* argument, const uint64_t* keys, size_t n, int32_t* servers);
phx_ps_table* phx_ps_worker_open_sliced(phx_ps_worker* worker, const char* name,
                                        phx_ps_slicer slicer, void* argument);
/* The result is a reply. Waits for the server's next life; a request can run twice. Unimplemented
 * (12): the server answers no requests. */
phx_call* phx_ps_worker_request(phx_ps_worker* worker, int server, int32_t head, const void* body,
                                uint64_t size);
/* The bytes are valid until the call is freed. */
int phx_result_reply(const phx_call* call, int32_t* head, const void** body, uint64_t* size);
/* As Worker::Barrier of ps.h. PHX_PS_WORKERS or PHX_PS_ALL; `options` can be NULL. */
phx_call* phx_ps_worker_barrier(phx_ps_worker* worker, int group,
                                const phx_ps_barrier_options* options);
/* As phx_member_list; NULL: of the workers. */
int64_t phx_ps_worker_list(const phx_ps_worker* worker, const char* role, phx_member_info* infos,
                           size_t n);
/* Waits until the servers have all pushes of this worker; it leaves its job. */
int phx_ps_worker_leave(phx_ps_worker* worker);
/* The same without waiting for snapshots. */
int phx_ps_worker_quit(phx_ps_worker* worker);
/* Ends the worker, as its death for the others. */
int phx_ps_worker_fail(phx_ps_worker* worker);
/* A worker that has not left dies with the last of it and its tables. */
void phx_ps_worker_free(phx_ps_worker* worker);

/* The name is valid until the table is freed. */
void phx_ps_table_spec_of(const phx_ps_table* table, phx_ps_table_spec* spec);
/* How many clocks this worker has ended, and the least of all, as servers have last said. */
void phx_ps_table_clocks(const phx_ps_table* table, uint64_t* own, uint64_t* least);
/* A push copies its values, and waits while the table keeps too many pushes that are in no
 * snapshot. `out` is written until the call has ended or is cancelled. Keys increase strictly;
 * values and `out` are `n` rows, of `bytes` in all. Errors are those of AnyTable in ps.h. */
phx_call* phx_ps_push_rows(phx_ps_table* table, const uint64_t* keys, size_t n, const void* values,
                           uint64_t bytes);
phx_call* phx_ps_pull_rows(phx_ps_table* table, const uint64_t* keys, size_t n, void* out,
                           uint64_t bytes);
phx_call* phx_ps_push_pull_rows(phx_ps_table* table, const uint64_t* keys, size_t n,
                                const void* values, void* out, uint64_t bytes);
/* Of a table with lengths, whose rows are neither pushed nor pulled by the calls above: row i has
 * lengths[i] elements, and values are all of them, one row behind the other, of `bytes` in all. */
phx_call* phx_ps_push_lengths(phx_ps_table* table, const uint64_t* keys, size_t n,
                              const void* values, uint64_t bytes, const uint32_t* lengths);
/* The result is that of phx_ps_pulled. */
phx_call* phx_ps_pull_lengths(phx_ps_table* table, const uint64_t* keys, size_t n);
phx_call* phx_ps_push_pull_lengths(phx_ps_table* table, const uint64_t* keys, size_t n,
                                   const void* values, uint64_t bytes, const uint32_t* lengths);
/* The lengths of `n` rows and their elements, one row behind the other, of `bytes` in all: the
 * caller's, to read and to write, until the call is freed. */
int phx_ps_pulled(phx_call* call, uint32_t** lengths, size_t* n, void** values, uint64_t* bytes);
/* All rows of a dense table. */
phx_call* phx_ps_push_dense(phx_ps_table* table, const void* values, uint64_t bytes);
phx_call* phx_ps_pull_dense(phx_ps_table* table, void* out, uint64_t bytes);
/* Returns when a push or a clock need not wait: for bindings that wait in slices. */
int phx_ps_table_await_room(const phx_ps_table* table, int64_t timeout);
/* A push of all rows that waits for memory of the node only so long. NULL: there was none, and it
 * is as if the call had not been made. */
phx_call* phx_ps_push_dense_within(phx_ps_table* table, const void* values, uint64_t bytes,
                                   int64_t timeout);
/* Ends this worker's clock. If a push was refused since the last call, returns the error of the
 * first one, once, and the clock goes on. */
int phx_ps_clock(phx_ps_table* table);
/* In a later life that makes other pushes than the one before: the next push is a new one. Returns
 * how many pushes of this clock it skips, which servers have. */
uint64_t phx_ps_table_skip_pushed(phx_ps_table* table);
void phx_ps_table_free(phx_ps_table* table);

/* ---- end ---- */
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* PHALANX_C_PS_H_ */
