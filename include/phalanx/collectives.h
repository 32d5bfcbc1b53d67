// Collectives: what a set of tasks does together, as short programs over the client's verbs.
//
//   task i of n:
//     client->Put(own[i], bytes).Wait();                          // own: n ids that all of them
//     know auto all = phalanx::AllGather(*client, own, i).Wait();      // n Buffers, the same on
//     everybody
//
// There are no groups, no ranks to be joined and no common start: whoever knows the ids takes part,
// and every task goes on as soon as it has what it asked for. A task that is run again makes the
// same calls again. Bytes are pulled by who wants them, in parallel over the links, and relayed by
// who has them; so a slow or late task delays those alone that need its object. Ids are objects'
// ids as everywhere: they name one object once, and a new round takes new ids. What was put stays
// until it is deleted.
//
// Reduce and AllReduce are verbs of the client itself. Steps and bytes on the wire of each are in
// docs/collectives.md; the Hoplite paper (SIGCOMM 2021) has the model in section 3.4.
//
// Everything returns at once with a Future, which may be cancelled, but where a Put of 1 MiB or
// more waits for the node's memory. Any thread. Errors are those of the verbs: the first one
// counts, and the rest is cancelled. The client outlives the call, not the Future.
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

// The part number `index` of `bytes` cut into `parts`: one after the other, whole units of `unit`
// bytes, the first ones a unit longer where it does not come out even; parts are empty when there
// are more of them than units. InvalidArgument when `bytes` are no whole units or there is no such
// part.
absl::StatusOr<Part> PartOf(uint64_t bytes, uint64_t unit, size_t parts, size_t index);

// ---- moving

// The objects in the order of `ids`, of whatever sizes. Errors as Client::GetMany.
Future<std::vector<Buffer>> Gather(Client& client, absl::Span<const ObjectId> ids,
                                   GetOptions options = {});

// The same, for when all of n tasks gather the objects that each of them has put: task `index`
// begins with the object after its own, so that not all of them ask for the same one first, and
// has large ones from the node that made that, which gets them as well: in a ring, so that no two
// share a link. InvalidArgument when there is no such index.
Future<std::vector<Buffer>> AllGather(Client& client, absl::Span<const ObjectId> ids, size_t index,
                                      GetOptions options = {});

// Puts part i of `bytes` (PartOf with that unit) as targets[i]; who wants a part Gets it. Copies
// the bytes before it returns. Ends when all are sealed on this node. InvalidArgument as PartOf,
// and when there is no target or one twice.
Future<Done> Scatter(Client& client, absl::Span<const ObjectId> targets, absl::string_view bytes,
                     uint64_t unit = 1, PutOptions options = {});

// One object for another task.
struct Outgoing {
  ObjectId id;
  absl::string_view bytes;
};

// Puts what goes out, and gets what comes in, in the order of `incoming`. Of n tasks each has n
// outgoing and n incoming ids (its own part to itself may be left out of both); sizes may differ.
// Copies the bytes before it returns. Ends when all have come and what goes out is sealed here.
Future<std::vector<Buffer>> AllToAll(Client& client, absl::Span<const Outgoing> outgoing,
                                     absl::Span<const ObjectId> incoming, GetOptions options = {});

// ---- reducing

// Task `index` of n reduces part `index` (PartOf with the dtype's size) of all sources, which have
// `bytes` each, into targets[index], and gets it. So n tasks that put a source each and make the
// same call have the whole result among them; the other targets can be got as well, and Gather of
// all of them is an AllReduce. Options as Client::Reduce, but for runs, offset and length.
// InvalidArgument as there, and when there is no such index or `bytes` are no whole elements.
Future<Buffer> ReduceScatter(Client& client, absl::Span<const ObjectId> targets,
                             absl::Span<const ObjectId> sources, size_t index, uint64_t bytes,
                             ReduceOptions options = {});

// ---- waiting

// Ends when all of `participants` have called it with the same name, each with its index. A name is
// good for one barrier. Who is run again and calls again passes at once if the others have passed.
// Of what it puts one empty object stays (BarrierObject), for those who come again; delete it when
// nobody will. InvalidArgument when there is no such index; DeadlineExceeded.
Future<Done> Barrier(Client& client, absl::string_view name, size_t participants, size_t index,
                     absl::Duration timeout = absl::InfiniteDuration());
ObjectId BarrierObject(const Client& client, absl::string_view name);

}  // namespace phalanx

#endif  // PHALANX_COLLECTIVES_H_
