// Collectives: operations of a set of tasks, written as short programs over the client's verbs.
//
//   task i of n:                                        // own: n ids that all tasks know
//     client->Put(own[i], bytes).Wait();
//     auto all = phalanx::AllGather(*client, own, i).Wait();   // n Buffers, the same on every task
//
// There are no groups, no ranks to join and no common start. Every task that knows the ids can take
// part, and each task continues as soon as it has its own result. A task that is run again makes
// the same calls again. Receivers pull bytes in parallel over the links and relay them to other
// receivers; a slow or late task delays only the tasks that need its object. Ids are object ids:
// each names one object once, and a new round takes new ids. An object exists until it is deleted.
//
// Reduce and AllReduce are verbs of the client itself. docs/collectives.md lists the steps and the
// bytes on the wire of each operation; section 3.4 of the Hoplite paper (SIGCOMM 2021) has the
// model.
//
// Every function returns at once with a Future that can be cancelled, except that a Put of 1 MiB or
// more waits for memory on the node. Any thread. Errors are those of the verbs: the first error
// ends the call and cancels the rest. The client must outlive the call, but not the Future.
#ifndef PHALANX_COLLECTIVES_H_
#define PHALANX_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/elements.h"
#include "phalanx/object_id.h"

namespace phalanx {

// Bytes [offset, offset + length).
struct Part {
  uint64_t offset = 0;
  uint64_t length = 0;
  friend bool operator==(const Part&, const Part&) = default;
};

// Returns part `index` of `bytes` cut into `parts` consecutive parts. Each part is a whole number
// of units of `unit` bytes. The first parts are one unit longer if the number of units is no
// multiple of `parts`, and the last ones are empty if there are more parts than units. Returns
// InvalidArgument if `bytes` is no whole number of units or `index` is out of range.
absl::StatusOr<Part> PartOf(uint64_t bytes, uint64_t unit, size_t parts, size_t index);

// ---- moving

// Returns the objects, of any sizes, in the order of `ids`. Errors as Client::GetMany.
Future<std::vector<Buffer>> Gather(Client& client, absl::Span<const ObjectId> ids,
                                   GetOptions options = {});

// As Gather, for n tasks that all gather the objects that each of them has put. Task `index` starts
// with the object after its own, so that the tasks do not all request the same object first. It
// gets a large object from the node that created the object after its own, which also gets all
// objects: a ring, so that no two tasks share a link. Returns InvalidArgument if `index` is out of
// range.
Future<std::vector<Buffer>> AllGather(Client& client, absl::Span<const ObjectId> ids, size_t index,
                                      GetOptions options = {});

// Puts part i of `bytes` (PartOf with this unit) as targets[i]. Other tasks get the parts that they
// need. Copies the bytes before it returns. Ends when all parts are sealed on this node. Returns
// InvalidArgument as PartOf, or if there is no target or a duplicate target.
Future<Done> Scatter(Client& client, absl::Span<const ObjectId> targets, absl::string_view bytes,
                     uint64_t unit = 1, PutOptions options = {});

// One object for another task.
struct Outgoing {
  ObjectId id;
  absl::string_view bytes;
};

// Puts the outgoing objects and gets the incoming ones, in the order of `incoming`. Each of n tasks
// has n outgoing and n incoming ids; it can omit its own part to itself from both. Sizes can
// differ. Copies the bytes before it returns. Ends when all incoming objects have arrived and all
// outgoing ones are sealed on this node.
Future<std::vector<Buffer>> AllToAll(Client& client, absl::Span<const Outgoing> outgoing,
                                     absl::Span<const ObjectId> incoming, GetOptions options = {});

// ---- reducing

// Task `index` of n reduces part `index` (PartOf with the size of the dtype) of all sources, which
// have `bytes` each, into targets[index], and gets it. n tasks that each put a source and make the
// same call have the whole result among them. Other targets can be fetched as well; a Gather of all
// of them completes an AllReduce. Options as Client::Reduce, except runs, offset and length.
// Returns InvalidArgument as Client::Reduce, or if `index` is out of range or `bytes` is no whole
// number of elements.
Future<Buffer> ReduceScatter(Client& client, absl::Span<const ObjectId> targets,
                             absl::Span<const ObjectId> sources, size_t index, uint64_t bytes,
                             ReduceOptions options = {});

// ---- waiting

// Ends when all `participants` have called it with the same name, each with its own index. A name
// is for one barrier: add a number to it for each round. A call that ended before the barrier did
// (its deadline passed, its process died) can be repeated, and then passes, also if the others have
// passed meanwhile. The barrier leaves one empty object (BarrierObject), by which a second use of
// the name is seen; delete it when there can be none. Returns AlreadyExists if this participant has
// passed the barrier (a task that runs again can ignore that: all have arrived), InvalidArgument
// if `index` is out of range, or DeadlineExceeded.
Future<Done> Barrier(Client& client, absl::string_view name, size_t participants, size_t index,
                     absl::Duration timeout = absl::InfiniteDuration());
ObjectId BarrierObject(const Client& client, absl::string_view name);

}  // namespace phalanx

#endif  // PHALANX_COLLECTIVES_H_
