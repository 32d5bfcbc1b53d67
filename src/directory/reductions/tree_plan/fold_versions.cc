#include "src/directory/reductions/tree_plan/fold_versions.h"

#include "src/common/ids/digest.h"

namespace phalanx::directory {

// Fixed-width little-endian numbers and one letter per kind: two lists of inputs never have one
// text.
void VersionText::Append(uint64_t value) {
  for (int i = 0; i < 8; ++i) text_.push_back(static_cast<char>(value >> (8 * i)));
}

void VersionText::Append(const Generation& generation) {
  Append(generation.creator.node);
  Append(generation.creator.incarnation);
  Append(generation.sequence);
}

void VersionText::AddSource(const ObjectId& id, const Generation& generation) {
  text_.push_back('o');
  text_.append(id.binary().data(), id.binary().size());
  Append(generation);
}

void VersionText::AddSlot(const SlotVersion& version) {
  text_.push_back('v');
  Append(version.AsGeneration());
}

void VersionText::AddStarSource(bool held, const ObjectId& id, const Generation& generation) {
  text_.push_back(held ? 'h' : 'i');
  AddSource(id, generation);
}

SlotVersion VersionText::Hash() const { return VersionOf(DigestOf(text_)); }

VersionText FoldVersions::Begin(bool root) const {
  const ReduceSpec& spec = inputs_.spec;
  VersionText text;
  // A new layout of the text needs another number: nodes keep versions across shard restarts.
  text.text_ = "phalanx fold 1";
  text.text_.append(inputs_.target.binary().data(), inputs_.target.binary().size());
  for (const uint64_t value :
       {static_cast<uint64_t>(spec.elements.dtype), static_cast<uint64_t>(spec.op),
        static_cast<uint64_t>(sources_.wanted()), spec.range_offset, spec.range_bytes,
        inputs_.size_bytes, static_cast<uint64_t>(root)}) {
    text.Append(value);
  }
  // With their number, so that the bytes of a run are never those of an input.
  text.Append(spec.elements.runs.size());
  for (const ElementRun& run : spec.elements.runs) {
    text.Append(run.end);
    text.Append(static_cast<uint64_t>(run.dtype));
  }
  return text;
}

SlotVersion FoldVersions::OfRoot(VersionText text, const NodeKey& node) const {
  SlotVersion version = text.Hash();
  while (dropped_roots_.count({node, version}) > 0) {
    // No input begins with this letter, so no other fold has the text.
    text.text_.push_back('+');
    version = text.Hash();
  }
  return version;
}

SlotVersion FoldVersions::OfLeaf(const ObjectId& source, const Generation& generation) const {
  VersionText text = Begin(/*root=*/false);
  text.AddSource(source, generation);
  return Of(text);
}

void FoldVersions::OnRootDropped(const NodeKey& node, const SlotVersion& version) {
  // Only a bound on memory: no READY is on the way for as many drops.
  if (dropped_roots_.size() >= kMaxDroppedRoots) dropped_roots_.clear();
  dropped_roots_.insert({node, version});
}

absl::Status FoldVersions::CheckInvariants() const {
  if (dropped_roots_.size() > kMaxDroppedRoots) {
    return absl::InternalError("too many dropped roots are remembered");
  }
  for (const auto& [node, version] : dropped_roots_) {
    if (!IsVersion(version.AsGeneration()))
      return absl::InternalError("a dropped root has no version");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
