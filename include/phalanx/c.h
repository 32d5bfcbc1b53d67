/* The client of client.h as C functions, for programs in C and bindings to other languages. Python
 * calls them through cffi.
 *
 * The libphalanx.so of the Python package exports these functions and nothing else; that of
 * scripts/sdk also exports those of client.h. Both link neither gRPC nor protobuf, and can be
 * loaded into one process with any other library.
 *
 * Threads and fork: as client.h. Any thread may call any function. An object of this interface
 * must not be used after, or while, it is freed.
 *
 * Errors. A function that can fail returns a code: 0, or an absl::StatusCode, which are those of
 * gRPC (3 InvalidArgument, 4 DeadlineExceeded, 5 NotFound, 6 AlreadyExists, 8 ResourceExhausted, 9
 * FailedPrecondition, 14 Unavailable, 15 DataLoss, ...). phx_error() returns the text of the last
 * error of this thread. A function that returns a pointer returns NULL for an error;
 * phx_error_code() returns its code.
 *
 * Ids have 20 bytes; lists of ids are contiguous. Times are nanoseconds; a negative time is
 * infinite. Texts end with a zero byte, and the callee copies them, except where a comment says
 * otherwise. If `options` is NULL, a function uses the defaults of client.h; in options that are
 * given, each field counts, so a timeout of 0 does not wait.
 *
 * cffi reads this file and c_ps.h, too: they have declarations and no macros between the two lines.
 */
#ifndef PHALANX_C_H_
#define PHALANX_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
/* ---- begin ---- */

typedef struct phx_client phx_client;
/* An asynchronous call. Freeing it does not cancel it. */
typedef struct phx_call phx_call;
/* The bytes of an object, read-only. They do not change until the buffer is freed, even if the
 * object is deleted or the client or the daemon ends. */
typedef struct phx_buffer phx_buffer;
/* Memory of an object that the caller writes. */
typedef struct phx_writer phx_writer;
typedef struct phx_stream phx_stream;
/* One hold of an object. */
typedef struct phx_ref phx_ref;
/* Announces calls that have ended, for event loops. */
typedef struct phx_queue phx_queue;

/* The last error of this thread; valid until the next one. */
const char* phx_error(void);
int phx_error_code(void);
/* The version of the library: "0.1.0". */
const char* phx_version(void);

/* ---- connecting */

typedef struct {
  const char* address;    /* NULL or "": PHALANX_ADDRESS, else a private cluster */
  const char* executable; /* of a private cluster; NULL: as in client.h */
  int64_t connect_timeout;
  uint64_t embedded_capacity; /* bytes: at least 1 MiB, or 0: the default */
} phx_connect_options;

phx_client* phx_connect(const phx_connect_options* options);
/* Ends all outstanding calls with FailedPrecondition ("closed"). Buffers stay valid. Can be
 * repeated. */
void phx_close(phx_client* client);
/* Closes the client. Its calls, buffers, refs, writers and streams can be used and freed later. */
void phx_client_free(phx_client* client);
/* Valid until the client is freed. */
const char* phx_client_address(const phx_client* client);
const char* phx_client_node(const phx_client* client);
const char* phx_client_directory(const phx_client* client);
/* Returns 1 in a child of fork, where no function of the client works. */
int phx_client_forked(const phx_client* client);
/* Readable if phx_poll has something to do. Returns -1 if the system refuses a descriptor. */
int phx_client_fd(phx_client* client);
/* Handles received messages; waits at most `timeout` for one. */
void phx_poll(phx_client* client, int64_t timeout);

void phx_id_random(char* id);
void phx_id_from_name(const char* name_space, size_t name_space_size, const char* name,
                      size_t name_size, char* id);
/* phx_id_from_name; the client remembers the name, sends it along with what it puts, gets and
 * reduces under the id, and shows it in errors (Client::Id in client.h). NULL as `id`: the caller
 * has it already. */
void phx_client_id(phx_client* client, const char* name_space, size_t name_space_size,
                   const char* name, size_t name_size, char* id);

/* ---- calls */

/* Returns the code of the call, or -1 if `timeout` passes first. */
int phx_wait(phx_call* call, int64_t timeout);
/* Waits until `count` of the n calls have ended or `timeout` has passed. Returns the number of
 * calls that have ended. All calls belong to one client. */
size_t phx_wait_some(phx_call* const* calls, size_t n, size_t count, int64_t timeout);
int phx_call_ended(const phx_call* call);
/* Ends the call with Cancelled if it has not ended. */
void phx_cancel(phx_call* call);
void phx_call_free(phx_call* call);
/* Frees a call whose result is not needed. The call ends as by phx_cancel (a reduction continues),
 * and the hold that it took on an owned object ends, even if the call had already succeeded. Like
 * a buffer, the call can be freed this way from a finaliser. */
void phx_call_forget(phx_call* call);
/* Puts `tag` into the queue when the call has ended; at once if it already has. */
void phx_call_notify(phx_call* call, phx_queue* queue, uint64_t tag);

phx_queue* phx_queue_new(void);
/* Readable while the queue has tags. Returns -1 if the system refused a descriptor. */
int phx_queue_fd(const phx_queue* queue);
/* Takes at most `n` tags out of the queue. Returns their number. */
size_t phx_queue_take(phx_queue* queue, uint64_t* tags, size_t n);
/* Later tags are lost. */
void phx_queue_free(phx_queue* queue);

/* Between the two, requests of all threads of the client are queued; the end of the outermost pair,
 * a thread that waits, or a long queue sends them together. Several calls take less time this way.
 * Each begin needs its end, before phx_client_free; an end without a begin does nothing. */
void phx_batch_begin(phx_client* client);
void phx_batch_end(phx_client* client);

/* ---- results of a call that has succeeded */

typedef struct {
  phx_buffer* buffer; /* the caller frees it */
  const char* data;
  size_t size;
  const char* metadata;
  size_t metadata_size;
  uint64_t object_size;
} phx_view;

typedef struct {
  int known;
  int deleted;
  int complete;
  int local;
  uint64_t size;
  int complete_copies;
  int partial_copies;
  int waiting;
  int conflicts;
  int owned;
  int holders;
  int sticky;
  size_t metadata_size;
  char metadata[4096];
  size_t name_size; /* 0 if the cluster knows no name */
  char name[255];
  size_t name_space_size;
  char name_space[255];
  int64_t ttl;       /* what is left of the time to live; negative: it has none */
  int copies_wanted; /* primary copies, each on another host; 0: no number of them is wanted */
  int copies_there;  /* hosts that have one */
} phx_object_status;

typedef struct {
  int nodes;        /* connected nodes that the names select */
  int complete;     /* of these, nodes with a complete copy */
  int without_room; /* nodes that have no memory for it or have declined it */
  uint64_t bytes;   /* received by all these nodes together */
  uint64_t total_bytes;
  int sticky;
} phx_broadcast_progress;

/* Returns the number of results: buffers of a Get, ids of ReducedFrom. */
size_t phx_result_count(const phx_call* call);
/* Returns the buffers [begin, end). Each can be taken several times, and is freed as often. */
int phx_result_views(const phx_call* call, size_t begin, size_t end, phx_view* views);
/* Copies small buffers from `begin` on into `bytes`, one after the other: the metadata of a buffer,
 * then its bytes. sizes[0] and sizes[1] are the sizes of both for the first buffer, and so on.
 * Returns the number of the buffers copied: it ends before `end` at a buffer of more than `most`
 * bytes, or if the next buffer does not fit into `room`. Returns -1 for an error. For many small
 * buffers this takes less time than views. */
int64_t phx_result_copies(const phx_call* call, size_t begin, size_t end, uint64_t most,
                          char* bytes, size_t room, uint64_t* sizes);
int phx_result_ids(const phx_call* call, char* ids);
int phx_result_status(const phx_call* call, phx_object_status* status);
int phx_result_progress(const phx_call* call, phx_broadcast_progress* progress);
/* Contains: 0 or 1. Broadcast: the number of nodes. Replicate: of hosts. Put, Seal: 1 if the object
 * already existed. */
int phx_result_number(const phx_call* call, int64_t* number);
/* The result of phx_create. Can be taken once. */
phx_writer* phx_result_writer(phx_call* call);

/* Does not block: this or another thread releases the buffer. */
void phx_buffer_free(phx_buffer* buffer);
/* Returns private, writable pages with the bytes of the buffer, copied page by page when they are
 * written. Other processes and buffers do not see the changes. phx_private_free returns the pages,
 * of `size` bytes. Returns NULL if the buffer is not mapped (below 1 MiB) or the system refuses;
 * the caller then copies the bytes. */
char* phx_private_pages(const phx_buffer* buffer);
void phx_private_free(char* pages, size_t size);

/* ---- writing */

typedef struct {
  const char* metadata;
  size_t metadata_size;
  int slices; /* 0: one */
  int wait_for_adoption;
  int owned;             /* docs/lifetime.md */
  const char* refers_to; /* ids */
  size_t refers_to_count;
  int64_t timeout;
  int64_t ttl; /* the time to live (client.h); 0 or negative: none */
  int copies;  /* primary copies on so many hosts (phx_replicate); 0: no number of them */
  int wait_for_copies;
  const char* scope; /* its name, with a zero byte; NULL: none */
  uint64_t scope_number;
} phx_put_options;

phx_call* phx_put(phx_client* client, const char* id, const void* bytes, size_t size,
                  const phx_put_options* options);
/* The result is a writer. A call that is cancelled, or freed before its writer is taken, leaves no
 * object. */
phx_call* phx_create(phx_client* client, const char* id, uint64_t size,
                     const phx_put_options* options);
char* phx_writer_data(phx_writer* writer);
int phx_writer_publish(phx_writer* writer, uint64_t n);
/* After the call the memory must not be touched. With `keep_memory` it becomes private memory with
 * the same bytes, until the writer is freed. */
phx_call* phx_writer_seal(phx_writer* writer, int keep_memory);
/* Aborts the object if it is not sealed. For the memory see phx_writer_seal. */
int phx_writer_abort(phx_writer* writer, int keep_memory);
/* Aborts the object if it is not sealed. */
void phx_writer_free(phx_writer* writer);
/* memcpy, with several threads for large sizes. */
void phx_copy(void* to, const void* from, size_t size);

/* ---- reading */

/* With `fail_if_lost` the call ends with DataLoss if every copy is lost. Otherwise it waits until
 * the object exists again. */
phx_call* phx_get(phx_client* client, const char* ids, size_t n, uint64_t offset, uint64_t length,
                  int fail_if_lost, int64_t timeout);
/* Task `index` of n gathers the objects of all tasks (collectives.h, AllGather). */
phx_call* phx_all_gather(phx_client* client, const char* ids, size_t n, size_t index,
                         int64_t timeout);
/* Returns DeadlineExceeded or the errors of a Get. The stream begins with the first bytes of the
 * object. */
int phx_stream_open(phx_client* client, const char* id, int64_t timeout, phx_stream** stream);
/* Returns the next bytes, at most `most`; size 0 at the end. Aborted: the bytes read so far are
 * void, and reading restarts at 0. The bytes are valid until the stream is freed or returns
 * Aborted. */
int phx_stream_next(phx_stream* stream, size_t most, int64_t timeout, const char** data,
                    size_t* size);
uint64_t phx_stream_size(phx_stream* stream);
size_t phx_stream_metadata(phx_stream* stream, char* metadata); /* 4096 bytes; returns the size */
void phx_stream_free(phx_stream* stream);

/* ---- reducing */

/* DType and ReduceOp of elements.h. */
enum {
  PHX_F16,
  PHX_BF16,
  PHX_F32,
  PHX_F64,
  PHX_I8,
  PHX_U8,
  PHX_I16,
  PHX_I32,
  PHX_U32,
  PHX_I64,
  PHX_U64
};
enum { PHX_SUM, PHX_PROD, PHX_MIN, PHX_MAX, PHX_BIT_AND, PHX_BIT_OR, PHX_BIT_XOR, PHX_MEAN };

/* A run of elements of one type. It begins at the end of the previous run (the first: at 0) and
 * extends to `end`, in bytes of the result. */
typedef struct {
  uint64_t end;
  int dtype; /* PHX_F16, ... */
} phx_element_run;

typedef struct {
  int dtype; /* PHX_F16, ... */
  int op;    /* PHX_SUM, ... */
  /* ElementRuns of elements.h, instead of dtype; 0 runs: all elements have one type. */
  const phx_element_run* runs;
  size_t num_runs;
  int fixed_order;
  /* Ends with Cancelled when no client is left that has requested it or added to it. */
  int open;
  int root_any;
  int owned;
  uint64_t num_objects;
  uint64_t offset;
  uint64_t length;
  int64_t timeout;
  /* The metadata that every folded source must have; of size 0: not compared. */
  const char* source_metadata;
  size_t source_metadata_size;
} phx_reduce_options;

phx_call* phx_reduce(phx_client* client, const char* target, const char* sources, size_t n,
                     const phx_reduce_options* options);
/* The result is the buffer of the target. */
phx_call* phx_all_reduce(phx_client* client, const char* target, const char* sources, size_t n,
                         const phx_reduce_options* options);
/* The result is the buffer of targets[index]; n targets and n sources. */
phx_call* phx_reduce_scatter(phx_client* client, const char* targets, const char* sources, size_t n,
                             size_t index, uint64_t bytes, const phx_reduce_options* options);
phx_call* phx_add_sources(phx_client* client, const char* target, const char* sources, size_t n,
                          int64_t timeout);
phx_call* phx_close_reduction(phx_client* client, const char* target, int64_t timeout);
phx_call* phx_reduced_from(phx_client* client, const char* target, int64_t timeout);
/* Gets of the object end with `code` and `why`. */
phx_call* phx_fail(phx_client* client, const char* id, int code, const char* why, size_t why_size,
                   int64_t timeout);
/* A name is for one barrier; AlreadyExists (6) if this participant has passed it. */
phx_call* phx_barrier(phx_client* client, const char* name, size_t name_size, size_t participants,
                      size_t index, int64_t timeout);

/* ---- lifetime: docs/lifetime.md */

int phx_hold(phx_client* client, const char* ids, size_t n);
/* Takes over one hold of the client; freeing the ref ends the hold. Like a buffer, the ref can be
 * freed from a finaliser, even after the client has been freed. */
phx_ref* phx_ref_of(phx_client* client, const char* id);
void phx_ref_free(phx_ref* ref);
/* `token`: 24 bytes. */
int phx_transit(phx_client* client, const char* id, char* token);
int phx_claim(phx_client* client, const char* id, const char* token, size_t token_size);
phx_call* phx_keep(phx_client* client, const char* id, int64_t timeout);

/* ---- managing */

phx_call* phx_stat(phx_client* client, const char* id, int64_t timeout);
phx_call* phx_contains(phx_client* client, const char* id, int64_t timeout);
phx_call* phx_delete(phx_client* client, const char* id, int64_t timeout);
/* Ends when each node has a complete copy. Names are consecutive, each with its zero byte; "*" is
 * all nodes. With `sticky`, nodes of these names that join later also get one. The broadcast
 * continues after the call is cancelled or freed. */
phx_call* phx_broadcast(phx_client* client, const char* id, const char* names, size_t n, int sticky,
                        int64_t timeout);
/* Asks for primary copies on so many different hosts, and ends when they are there (client.h). The
 * copies are made also after the call is cancelled or freed. The result is the number of hosts. */
phx_call* phx_replicate(phx_client* client, const char* id, int copies, int64_t timeout);
/* Frees all objects of the scope, and of those with its name and a smaller number (client.h). */
phx_call* phx_end_scope(phx_client* client, const char* name, uint64_t number, int64_t timeout);
/* Nodes that join later no longer get the object. */
phx_call* phx_broadcast_stop(phx_client* client, const char* id, int64_t timeout);
phx_call* phx_broadcast_progress_of(phx_client* client, const char* id, const char* names, size_t n,
                                    int64_t timeout);

/* ---- jobs: docs/jobs.md, job.h */

/* A place in a job. */
typedef struct phx_member phx_member;

typedef struct {
  const char* role; /* NULL or "": PHALANX_ROLE, or "worker" */
  int world;        /* 0: PHALANX_WORLD */
  int rank;         /* negative: that of the task's name, or the least free one */
  int64_t timeout;
} phx_join_options;

/* PHX_ABSENT: no task with this rank has joined so far. */
enum { PHX_ABSENT, PHX_LIVE, PHX_DIED, PHX_LEFT };

typedef struct {
  int rank;
  int state; /* PHX_LIVE, ... */
  uint64_t life;
  uint64_t change; /* the number of its last change, from 1; 0: none so far */
  char task[256];
  char host[321];
  char node[321];
} phx_member_info;

/* Returns when the directory has answered. Names that are NULL or "" are PHALANX_JOB and
 * PHALANX_TASK. */
phx_member* phx_join(phx_client* client, const char* job, const char* task,
                     const phx_join_options* options);
/* The texts are valid until the member is freed. */
const char* phx_member_job(const phx_member* member);
const char* phx_member_role(const phx_member* member);
const char* phx_member_task(const phx_member* member);
int phx_member_rank(const phx_member* member);
uint64_t phx_member_life(const phx_member* member);
int phx_member_world(const phx_member* member);
/* 0 while the task is a member; Aborted (10): a newer life of it has joined, or the others were
 * informed that it died. */
int phx_member_status(const phx_member* member);
/* Fills in at most `n` members of the role in the order of ranks (NULL: of the member's own role),
 * and returns how many ranks the role has: 0 if no task of it has joined. */
int64_t phx_member_list(const phx_member* member, const char* role, phx_member_info* infos,
                        size_t n);
/* Waits until every rank of the role has a live member. */
int phx_member_wait_world(const phx_member* member, int64_t timeout);
/* Waits until a member of any role of the job has changed after the change with the number `after`;
 * `change` is then the number of the last one. */
int phx_member_wait_change(const phx_member* member, uint64_t after, int64_t timeout,
                           uint64_t* change);
/* Sends `size` bytes, at most 1 MiB, to the member with this role (NULL: the member's own) and
 * rank; with a `life` that is not negative, only if it is in this life. The bytes are copied. The
 * call ends when the message has left: it waits while the receiver has not taken earlier messages.
 * Unavailable (14): the receiver is not live. DataLoss (15): earlier messages were lost. */
phx_call* phx_member_send(phx_member* member, const char* role, int rank, int64_t life,
                          const void* data, size_t size, int64_t timeout);
/* A message of another member. */
typedef struct phx_message phx_message;
/* Waits for the next message, of any member. */
phx_message* phx_member_receive(phx_member* member, int64_t timeout);
/* The bytes and the text are valid until the message is freed. */
const void* phx_message_data(const phx_message* message);
size_t phx_message_size(const phx_message* message);
const char* phx_message_role(const phx_message* message);
int phx_message_rank(const phx_message* message);
uint64_t phx_message_life(const phx_message* message);
void phx_message_free(phx_message* message);
/* Prints `size` bytes of text, and a newline if it has none at its end, on the standard output of
 * the `phalanx launch` that has started this process, without the task's name in front, or on this
 * process's own (Membership::Print). Unavailable (14): the launch has ended. */
int phx_member_print(const phx_member* member, const char* text, size_t size);
/* Kills this process with SIGKILL, as the death `death` that was declared to the `phalanx launch`
 * that has started it, such as "mock=1,1,1,0" among the words of its command: the launch then
 * counts that one as made. For libraries that make such deaths themselves. Does not return. */
void phx_member_die(const phx_member* member, const char* death);
/* The others see that the task left; with `failed`, that it died. */
int phx_member_leave(phx_member* member, int failed);
/* A member that has not left dies. */
void phx_member_free(phx_member* member);

/* ---- groups: docs/jobs.md, group.h */

/* Collectives of the members of one role. All members make the same calls in the same order, and
 * can make one before the last one has ended. One thread at a time makes calls of a group. */
typedef struct phx_group phx_group;

/* LossPolicy of group.h. */
enum { PHX_ON_LOSS_WAIT, PHX_ON_LOSS_EXCLUDE, PHX_ON_LOSS_FAIL };

/* kUntilReleased of group.h. */
enum { PHX_UNTIL_RELEASED = -1 };

typedef struct {
  int on_loss;     /* PHX_ON_LOSS_FAIL, ...; the same for all members */
  int64_t timeout; /* of each call */
  /* How many results of the last calls are kept, or PHX_UNTIL_RELEASED, and on how many hosts (0:
   * 2); the same for all. */
  int retain;
  int retain_copies;
} phx_group_options;

/* Returns a group of the member's role. It keeps the member in its job, also if the member is freed
 * before. */
phx_group* phx_group_of(const phx_member* member, const phx_group_options* options);
/* The memory of a call stays valid, and unchanged by others, until the call has ended, also if the
 * call is freed before. A call that has ended by phx_cancel leaves its memory alone; it goes on at
 * the node, so that the numbers of later calls fit. Errors are those of group.h. NULL is returned
 * only for a dtype or an op that is none of PHX_F16, ... and PHX_SUM, ... */
phx_call* phx_group_all_reduce(phx_group* group, int dtype, void* inout, uint64_t bytes, int op);
/* The result is at the root; the memory of the other members stays as it is. */
phx_call* phx_group_reduce(phx_group* group, int root, int dtype, void* inout, uint64_t bytes,
                           int op);
phx_call* phx_group_broadcast(phx_group* group, int root, void* inout, uint64_t bytes);
/* The output has the inputs of all members in the order of ranks. Here and below, input and output
 * do not overlap. */
phx_call* phx_group_all_gather(phx_group* group, const void* input, uint64_t input_bytes,
                               void* output, uint64_t output_bytes);
/* The input has a part for each rank; the output is the fold of all members' parts for this one. */
phx_call* phx_group_reduce_scatter(phx_group* group, int dtype, const void* input,
                                   uint64_t input_bytes, void* output, uint64_t output_bytes,
                                   int op);
/* Part r of the output is the part of rank r's input for this rank. */
phx_call* phx_group_all_to_all(phx_group* group, const void* input, uint64_t input_bytes,
                               void* output, uint64_t output_bytes);
/* Ends when all members have called. */
phx_call* phx_group_barrier(phx_group* group);
/* The kept result of the call with this number, which has ended. Takes no number. Errors are those
 * of Group::Result. */
phx_call* phx_group_result(phx_group* group, uint64_t call, void* output, uint64_t bytes);
/* GroupKeep and GroupProgress of group.h. */
typedef struct {
  uint64_t boot;
  uint64_t released;
  uint64_t mark;
} phx_group_keep;
typedef struct {
  uint64_t ended;
  phx_group_keep keep;
} phx_group_progress;
/* The calls that follow say so. */
void phx_group_set_keep(phx_group* group, const phx_group_keep* keep);
/* Where the group was when this life of the member entered it. */
phx_call* phx_group_progress_of(phx_group* group);
int phx_result_group_progress(const phx_call* call, phx_group_progress* progress);
/* Of the calls that have ended here: the number of the last one, from 1, and the members that took
 * part in it. */
uint64_t phx_group_calls(const phx_group* group);
int phx_group_members_of_last_call(const phx_group* group);
/* The calls of the group can be used and freed later. */
void phx_group_free(phx_group* group);

/* ---- sessions: docs/jobs.md, spmd.h */

/* One rank of a program that survives the deaths of some of its ranks. One thread at a time. After
 * an error of a call the session is over, except where spmd.h says otherwise. */
typedef struct phx_session phx_session;

typedef struct {
  const char* job; /* NULL or "": PHALANX_JOB; likewise the task, and the role ("worker") */
  const char* task;
  const char* role;
  int world;                  /* 0: PHALANX_WORLD */
  int result_copies;          /* 0: 2 */
  int local_copies;           /* 0: 2 */
  int64_t peer_timeout;       /* of each wait for the other ranks; 0: five minutes */
  const char* checkpoint_dir; /* NULL or "": PHALANX_CHECKPOINT_DIR, else none */
} phx_session_options;

/* Functions of the program. They are called in the thread of the call. One that returns an int
 * returns 0, or else the call ends with Cancelled (1); a call whose `prepare` does so is not made,
 * and can be repeated. */
typedef int (*phx_prepare)(void* argument);
/* into[i] becomes the fold of into[i], of lower ranks, and from[i]. */
typedef int (*phx_fold)(void* argument, void* into, const void* from, uint64_t count);
/* Returns memory for so many bytes, or NULL. */
typedef void* (*phx_place)(void* argument, uint64_t bytes);
/* The bytes are valid until the next function of the program is called. */
typedef int (*phx_save)(void* argument, const void** bytes, uint64_t* size);
typedef int (*phx_take)(void* argument, const void* bytes, uint64_t size);
/* `local` is NULL without local models. */
typedef int (*phx_take_both)(void* argument, const void* bytes, uint64_t size, const void* local,
                             uint64_t local_size);

phx_session* phx_session_join(phx_client* client, const phx_session_options* options);
int phx_session_rank(const phx_session* session);
int phx_session_world(const phx_session* session);
uint64_t phx_session_life(const phx_session* session);
uint64_t phx_session_version(const phx_session* session);
uint64_t phx_session_seq(const phx_session* session);

typedef struct {
  uint64_t repeated;
  uint64_t made;
  uint64_t prepared;
  uint64_t checkpoint_bytes;
  int64_t recovery; /* nanoseconds */
} phx_session_stats;
void phx_session_stats_of(const phx_session* session, phx_session_stats* stats);

/* `prepare` can be NULL, and so can `name`. */
int phx_session_allreduce(phx_session* session, int dtype, void* inout, uint64_t bytes, int op,
                          phx_prepare prepare, void* argument, const char* name);
/* NULL: the call was not made, or has failed already. `inout` is written until the call has ended
 * or is freed, or the session is freed. */
phx_call* phx_session_allreduce_async(phx_session* session, int dtype, void* inout, uint64_t bytes,
                                      int op, phx_prepare prepare, void* argument,
                                      const char* name);
int phx_session_allreduce_by(phx_session* session, void* inout, uint64_t bytes, uint64_t element,
                             phx_fold fold, void* fold_argument, phx_prepare prepare,
                             void* argument, const char* name);
/* ModelFold of spmd.h: `save` returns this rank's value, `add` folds one of higher ranks into it,
 * and it becomes the result by `load`. If `add` fails, this rank's session is over, and the others
 * wait for its next life. */
int phx_session_allreduce_model(phx_session* session, phx_save save, phx_take add, phx_take load,
                                void* fold_argument, phx_prepare prepare, void* argument,
                                const char* name);
int phx_session_broadcast(phx_session* session, void* inout, uint64_t bytes, int root,
                          const char* name);
/* `bytes` are the root's; `place` is called at the root as well, and returns where they are. */
int phx_session_broadcast_sized(phx_session* session, uint64_t bytes, uint64_t element, int root,
                                phx_place place, void* argument, const char* name);
/* Any number of elements of each rank. offsets[r] is where those of rank r begin, in bytes, and
 * offsets[world] their end; NULL: not wanted. */
int phx_session_allgather(phx_session* session, const void* input, uint64_t bytes, uint64_t element,
                          phx_place place, void* argument, uint64_t* offsets, const char* name);
int phx_session_barrier(phx_session* session, const char* name);
/* `take` is called if `version` becomes greater than 0. */
int phx_session_load(phx_session* session, int with_local, phx_take_both take, void* argument,
                     uint64_t* version);
/* `local` is NULL without local models; one of no bytes is not NULL. */
int phx_session_checkpoint(phx_session* session, const void* bytes, uint64_t size,
                           const void* local, uint64_t local_size);
/* `save` and its argument are used until the next checkpoint or phx_session_leave has ended. */
int phx_session_lazy_checkpoint(phx_session* session, phx_save save, void* argument);
int phx_session_print(phx_session* session, const char* text, size_t size);
/* As phx_member_die. */
void phx_session_die(const phx_session* session, const char* death);
int phx_session_leave(phx_session* session);
/* A session that has not left dies; calls under way end with Cancelled (1). */
void phx_session_free(phx_session* session);

/* ---- end ---- */
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#include "phalanx/c_ps.h" /* parameter servers */

#endif /* PHALANX_C_H_ */
