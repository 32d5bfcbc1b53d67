// Versions of slots' outputs and ids of reductions: ids that share the three numbers of a
// Generation, because messages carry them as one, but that identify no generation of an object.
// Each is a type of its own. It converts to and from a Generation only by name, where the protocol
// uses the same field for both:
//   - messages carry each of them as v1.Generation (directory/core/validate.h);
//   - a receiver pulls a slot's output, and a node serves it, as (target, version);
//   - the tombstone of a target lists the id of a deleted reduction among the generations.
// The values are distinct even there: no node's incarnation has the bit kVersionIncarnation, and
// the sequence of a version is 1, that of a reduction id is greater.
//
// Pure functions and values, any thread.
#ifndef PHALANX_COMMON_IDS_VERSION_H_
#define PHALANX_COMMON_IDS_VERSION_H_

#include <compare>
#include <cstdint>
#include <string>

#include "src/common/ids/digest.h"
#include "src/common/ids/ids.h"

namespace phalanx {

// An id in the form of a Generation. `Tag` distinguishes the kinds: two kinds neither compare nor
// convert. The order is that of the numbers, for ordered containers, and has no meaning.
template <typename Tag>
class TaggedId {
 public:
  constexpr TaggedId() = default;
  // Takes the numbers as they are: the message that they are from can have any.
  static constexpr TaggedId FromGeneration(const Generation& form) {
    TaggedId id;
    id.form_ = form;
    return id;
  }
  constexpr const Generation& AsGeneration() const { return form_; }

  bool valid() const { return form_.valid(); }
  friend auto operator<=>(const TaggedId&, const TaggedId&) = default;
  std::string ToString() const { return form_.ToString(); }

 private:
  Generation form_;
};

// Identifies the bytes of a partial result, as a generation identifies those of an object. The
// target's shard computes the version of a slot from the slot's inputs, so a slot with the same
// inputs has the same version on every node; the version of a ring is random.
using SlotVersion = TaggedId<struct SlotVersionTag>;

// Identifies one reduction of a target, in messages and tombstones. The target's shard mints it
// when the reduction begins, and nodes repeat it. BeganAfter orders the reductions of one target.
using ReductionId = TaggedId<struct ReductionIdTag>;

inline constexpr uint64_t kVersionIncarnation = uint64_t{1} << 63;

// Returns the version of a slot whose inputs have this digest. The result is valid().
inline SlotVersion VersionOf(const Digest128& inputs) {
  return SlotVersion::FromGeneration({{inputs.low | 1, inputs.high | kVersionIncarnation}, 1});
}

// Returns true if a message means a version by this generation.
inline bool IsVersion(const Generation& generation) {
  return generation.sequence == 1 && (generation.creator.incarnation & kVersionIncarnation) != 0;
}

// Returns the id of the `count`-th reduction of one incarnation of a shard, which the two random
// numbers identify. The result is valid(). REQUIRES: count >= 1.
inline ReductionId MakeReductionId(uint64_t low, uint64_t high, uint64_t count) {
  return ReductionId::FromGeneration({{low | 1, high | kVersionIncarnation}, count + 1});
}

// Returns true if a message means a reduction by this generation.
inline bool IsReductionId(const Generation& generation) {
  return generation.sequence > 1 && (generation.creator.incarnation & kVersionIncarnation) != 0;
}

// Returns the count that the id was made with. REQUIRES: id.valid().
inline uint64_t CountOf(const ReductionId& id) { return id.AsGeneration().sequence - 1; }

// True if one incarnation of a shard minted both.
inline bool MintedTogether(const ReductionId& a, const ReductionId& b) {
  return a.AsGeneration().creator == b.AsGeneration().creator;
}

// True if `a` began after `b`. REQUIRES: both are valid and have the same target. A restarted shard
// continues from the greatest count that nodes report to it.
inline bool BeganAfter(const ReductionId& a, const ReductionId& b) {
  if (CountOf(a) != CountOf(b)) return CountOf(a) > CountOf(b);
  return b.AsGeneration().creator < a.AsGeneration().creator;
}

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_VERSION_H_
