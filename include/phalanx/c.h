/* The client of client.h as C functions: what bindings to other languages load. Python's calls it
 * through cffi.
 *
 * The library of these functions, libphalanx.so, exports them and nothing else, links neither gRPC
 * nor protobuf, and may live in one process with any other library.
 *
 * Threads and fork: as client.h says. Any function may be called from any thread; an object of this
 * interface must not be used after, or while, it is freed.
 *
 * Errors. A function that can fail returns a code: 0, or one of absl::StatusCode, which are gRPC's
 * (3 InvalidArgument, 4 DeadlineExceeded, 5 NotFound, 6 AlreadyExists, 8 ResourceExhausted,
 * 9 FailedPrecondition, 14 Unavailable, 15 DataLoss, ...). phx_error() has the text of the last one
 * that this thread was given. Functions that return a pointer return NULL for an error, and
 * phx_error_code() has its code.
 *
 * Ids are 20 bytes; several of them lie one after the other. Times are nanoseconds; less than 0 is
 * for ever. Texts end with a zero byte and are copied by who is given them, unless said otherwise.
 *
 * This file is read by cffi as well: it has declarations and no macros between the two lines.
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
/* A call that may take time. Freeing it does not cancel it. */
typedef struct phx_call phx_call;
/* An object's bytes, read-only, which stay as they are until it is freed, whatever happens to the
 * object, the client or the daemon. */
typedef struct phx_buffer phx_buffer;
/* Memory of an object that is being made. */
typedef struct phx_writer phx_writer;
typedef struct phx_stream phx_stream;
/* One hold of an object. */
typedef struct phx_ref phx_ref;
/* Where calls that end are announced, for event loops. */
typedef struct phx_queue phx_queue;

/* Of the last error of this thread; valid until its next one. */
const char* phx_error(void);
int phx_error_code(void);
/* Of the library: "0.1.0". */
const char* phx_version(void);

/* ---- connecting */

typedef struct {
  const char* address;    /* NULL or "": PHALANX_ADDRESS, else a private cluster */
  const char* executable; /* of a private cluster; NULL: where client.h looks for it */
  int64_t connect_timeout;
  uint64_t embedded_capacity; /* bytes; 0: the default */
} phx_connect_options;

phx_client* phx_connect(const phx_connect_options* options);
/* What is outstanding ends with FailedPrecondition ("closed"); buffers stay. May be repeated. */
void phx_close(phx_client* client);
/* Closes. Calls, buffers, refs, writers and streams of it may be used and freed later. */
void phx_client_free(phx_client* client);
/* Valid as long as the client. */
const char* phx_client_address(const phx_client* client);
const char* phx_client_node(const phx_client* client);
const char* phx_client_directory(const phx_client* client);
/* True in a child of fork: nothing works there. */
int phx_client_forked(const phx_client* client);
/* Readable when phx_poll has something to do; -1 when the system refuses. */
int phx_client_fd(phx_client* client);
/* Handles what has arrived; waits for something at most so long. */
void phx_poll(phx_client* client, int64_t timeout);

void phx_id_random(char* id);
void phx_id_from_name(const char* name_space, size_t name_space_size, const char* name,
                      size_t name_size, char* id);

/* ---- calls */

/* The code with which it ended, or -1 when `timeout` passes first. */
int phx_wait(phx_call* call, int64_t timeout);
/* Until `count` of the n calls have ended, or `timeout` has passed; how many have. All of them are
 * of one client. */
size_t phx_wait_some(phx_call* const* calls, size_t n, size_t count, int64_t timeout);
int phx_call_ended(const phx_call* call);
/* It ends with Cancelled unless it has ended. */
void phx_cancel(phx_call* call);
void phx_call_free(phx_call* call);
/* Frees a call for who has no use for what it makes: it ends as by phx_cancel (a reduction goes
 * on), and the hold that it took of an owned object ends, also when it has ended well before. As a
 * buffer it may be freed so from a finaliser. */
void phx_call_forget(phx_call* call);
/* `tag` is put into the queue when the call has ended; at once if it has. */
void phx_call_notify(phx_call* call, phx_queue* queue, uint64_t tag);

phx_queue* phx_queue_new(void);
/* Readable while there are tags; -1 when the system refused one. */
int phx_queue_fd(const phx_queue* queue);
/* Takes at most `n` tags out; how many. */
size_t phx_queue_take(phx_queue* queue, uint64_t* tags, size_t n);
/* Tags that come later are lost. */
void phx_queue_free(phx_queue* queue);

/* ---- results: of a call that has ended well */

typedef struct {
  phx_buffer* buffer; /* to be freed */
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
} phx_object_status;

typedef struct {
  int nodes;        /* that are to have it, of those that are there */
  int complete;     /* of these, that have all of it */
  int without_room; /* that have no memory for it now, or have not taken it */
  uint64_t bytes;   /* that have come to all of them together */
  uint64_t total_bytes;
  int sticky;
} phx_broadcast_progress;

/* How many results it has: buffers of a Get, ids of ReducedFrom. */
size_t phx_result_count(const phx_call* call);
/* The buffers [begin, end); each one may be taken several times, and is freed each time. */
int phx_result_views(const phx_call* call, size_t begin, size_t end, phx_view* views);
int phx_result_ids(const phx_call* call, char* ids);
int phx_result_status(const phx_call* call, phx_object_status* status);
int phx_result_progress(const phx_call* call, phx_broadcast_progress* progress);
/* Contains: 0 or 1. Prefetch, Broadcast: nodes. Put, Seal: 1 when the object had existed already.
 */
int phx_result_number(const phx_call* call, int64_t* number);
/* Of phx_create, once. */
phx_writer* phx_result_writer(phx_call* call);

/* What is dropped here is given back by this or another thread, never waited for. */
void phx_buffer_free(phx_buffer* buffer);
/* Private, writable pages with the buffer's bytes: copied page by page when they are written, seen
 * by nobody else. `size` bytes; phx_private_free returns them. NULL when the buffer is not mapped
 * (below 1 MiB) or the system refuses: copy then. */
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
} phx_put_options;

phx_call* phx_put(phx_client* client, const char* id, const void* bytes, size_t size,
                  const phx_put_options* options);
/* Its result is a writer. Cancelled, or freed without having given it, it leaves no object. */
phx_call* phx_create(phx_client* client, const char* id, uint64_t size,
                     const phx_put_options* options);
char* phx_writer_data(phx_writer* writer);
int phx_writer_publish(phx_writer* writer, uint64_t n);
/* The memory must not be touched from here on; or, with `keep_memory`, it is private memory with
 * the same bytes from here on, until the writer is freed. */
phx_call* phx_writer_seal(phx_writer* writer, int keep_memory);
/* Aborts the object unless it is sealed; of the memory as phx_writer_seal. */
int phx_writer_abort(phx_writer* writer, int keep_memory);
/* Aborts the object unless it is sealed. */
void phx_writer_free(phx_writer* writer);
/* memcpy, by several threads when it is large. */
void phx_copy(void* to, const void* from, size_t size);

/* ---- reading */

/* With `fail_if_lost` it ends with DataLoss when every copy is lost, which is waited out otherwise.
 */
phx_call* phx_get(phx_client* client, const char* ids, size_t n, uint64_t offset, uint64_t length,
                  int fail_if_lost, int64_t timeout);
/* Of n tasks, task `index` gathers what each has put (collectives.h, AllGather). */
phx_call* phx_all_gather(phx_client* client, const char* ids, size_t n, size_t index,
                         int64_t timeout);
/* DeadlineExceeded, or what a Get ends with. The stream begins with the object's first bytes. */
int phx_stream_open(phx_client* client, const char* id, int64_t timeout, phx_stream** stream);
/* The next bytes, at most `most` of them; size 0 at the end. Aborted: what was read is void,
 * reading starts again at 0. The bytes are valid until the stream is freed, or was void. */
int phx_stream_next(phx_stream* stream, size_t most, int64_t timeout, const char** data,
                    size_t* size);
uint64_t phx_stream_size(phx_stream* stream);
size_t phx_stream_metadata(phx_stream* stream, char* metadata); /* 4096 bytes; how many it has */
void phx_stream_free(phx_stream* stream);

/* ---- reducing */

/* Elements of one type, from the end of the run before (the first: from 0) up to `end`, in bytes of
 * the result. */
typedef struct {
  uint64_t end;
  int dtype; /* DType of elements.h */
} phx_element_run;

typedef struct {
  int dtype; /* DType of elements.h */
  int op;    /* ReduceOp of elements.h */
  /* ElementRuns of elements.h, in place of dtype; 0 of them: all elements are of one type. */
  const phx_element_run* runs;
  size_t num_runs;
  int fixed_order;
  int open;
  int root_any;
  int owned;
  uint64_t num_objects;
  uint64_t offset;
  uint64_t length;
  int64_t timeout;
} phx_reduce_options;

phx_call* phx_reduce(phx_client* client, const char* target, const char* sources, size_t n,
                     const phx_reduce_options* options);
/* Its result is the target's buffer. */
phx_call* phx_all_reduce(phx_client* client, const char* target, const char* sources, size_t n,
                         const phx_reduce_options* options);
/* Its result is the buffer of targets[index]; n targets and n sources. */
phx_call* phx_reduce_scatter(phx_client* client, const char* targets, const char* sources, size_t n,
                             size_t index, uint64_t bytes, const phx_reduce_options* options);
phx_call* phx_add_sources(phx_client* client, const char* target, const char* sources, size_t n,
                          int64_t timeout);
phx_call* phx_close_reduction(phx_client* client, const char* target, int64_t timeout);
phx_call* phx_reduced_from(phx_client* client, const char* target, int64_t timeout);
/* `code` and `why` are what Gets of it end with. */
phx_call* phx_fail(phx_client* client, const char* id, int code, const char* why, size_t why_size,
                   int64_t timeout);
phx_call* phx_barrier(phx_client* client, const char* name, size_t name_size, size_t participants,
                      size_t index, int64_t timeout);

/* ---- lifetime: docs/lifetime.md */

int phx_hold(phx_client* client, const char* ids, size_t n);
/* Takes over one hold that the client has; freeing it ends that. As a buffer it may be freed from a
 * finaliser, also when the client has been freed. */
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
/* Names one after the other, each with its zero byte; "*" is all nodes. */
phx_call* phx_prefetch(phx_client* client, const char* id, const char* names, size_t n,
                       int64_t timeout);
/* Ends when each node has a complete copy; names as for phx_prefetch. `sticky`: nodes of these
 * names that come later get one, too. Cancelled, or freed, it goes on. */
phx_call* phx_broadcast(phx_client* client, const char* id, const char* names, size_t n, int sticky,
                        int64_t timeout);
/* Nodes that come later do not get it any more. */
phx_call* phx_broadcast_stop(phx_client* client, const char* id, int64_t timeout);
phx_call* phx_broadcast_progress_of(phx_client* client, const char* id, const char* names, size_t n,
                                    int64_t timeout);

/* ---- end ---- */
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* PHALANX_C_H_ */
