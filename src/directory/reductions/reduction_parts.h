// What every part of the reductions' subsystem stands on; all of it outlives them. Filled in once
// by DirectoryCore.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_PARTS_H_
#define PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_PARTS_H_

#include "src/directory/core/core_context.h"
#include "src/directory/core/node_table.h"
#include "src/directory/core/outbox.h"
#include "src/directory/core/recovery_gate.h"
#include "src/directory/objects/failure_table.h"
#include "src/directory/objects/hold_sets.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/objects/tombstone_table.h"
#include "src/directory/pulls/failed_pairs.h"
#include "src/directory/pulls/link_model.h"

namespace phalanx::directory {

struct ReductionParts {
  CoreContext& context;
  NodeTable& nodes;
  Outbox& outbox;
  RecoveryGate& gate;
  ObjectTable& objects;
  TombstoneTable& tombstones;
  FailureTable& failures;
  const HoldSets& holds;
  LinkModel& links;
  FailedPairs& pairs;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_PARTS_H_
