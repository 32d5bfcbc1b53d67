// Random clients, shard, peers and time against one store. After every step its invariants hold,
// what is seen is what was written, and nothing disappears without an order; in the end everything
// is given back. Each named defect is found.
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::ScopedDefect;
using testing::Content;
using testing::Id;
using testing::kPeer;
using testing::Reading;
using testing::StoreWorld;

constexpr int kIds = 12;
constexpr uint64_t kCapacity = 20000;
constexpr int kSteps = 300;

// The metadata of every object says what its bytes must be.
std::string Label(uint64_t size, uint64_t seed) { return absl::StrCat(size, " ", seed); }
std::string Labelled(const std::string& label) {
  const std::vector<std::string> parts = absl::StrSplit(label, ' ');
  return Content(std::stoull(parts.at(0)), std::stoull(parts.at(1)));
}

// Sizes and slices of what peers create are a function of the generation.
struct Foreign {
  ObjectId id;
  Generation generation;
  uint64_t size;
  int slices;
  std::string label;
};
Foreign MakeForeign(int id, uint64_t sequence) {
  const uint64_t size = (sequence * 977 + static_cast<uint64_t>(id) * 131) % 7000;
  return {Id(id), Generation{kPeer, sequence}, size, 1 + static_cast<int>(sequence % 3),
          Label(size, sequence * 10 + static_cast<uint64_t>(id))};
}

// How often what is meant to happen did: a run in which nothing happens proves nothing.
struct Coverage {
  uint64_t views = 0;
  uint64_t voids = 0;
  uint64_t evictions = 0;
  uint64_t pulls = 0;
  uint64_t failed_pulls = 0;
  uint64_t completed_pulls = 0;
  uint64_t served = 0;
  uint64_t conflicts = 0;
  uint64_t waited_for_memory = 0;
};

class RandomRun {
 public:
  explicit RandomRun(uint64_t seed) : random_(seed), w_(kCapacity * (1 + seed % 4)) {
    w_.quiet = true;
    clients_.push_back(w_.client());
    w_.on_sent = [this](int, const v1::NodeMessage& message) {
      if (message.has_want()) wanted_.insert(message.want().object_id());
      if (message.has_unwant()) wanted_.erase(message.unwant().object_id());
      if (message.has_evict_request()) asked_.push_back(message.evict_request());
    };
  }

  absl::Status Run() {
    for (int step = 0; step < kSteps; ++step) {
      const auto before = CompleteCopies();
      may_vanish_ = false;
      Step();
      Look(before);
      if (!w_.problem.ok()) {
        return absl::InternalError(absl::StrCat("step ", step, ": ", w_.problem.message()));
      }
    }
    End();
    return w_.problem;
  }
  void Add(Coverage& c) {
    const StoreStats stats = w_.store().stats();
    c.evictions += stats.evictions;
    c.pulls += stats.pulls_started;
    c.failed_pulls += stats.pulls_failed;
    c.conflicts += stats.conflicts;
    c.views += coverage_.views;
    c.voids += coverage_.voids;
    c.served += coverage_.served;
    c.completed_pulls += coverage_.completed_pulls;
    c.waited_for_memory += coverage_.waited_for_memory;
  }

 private:
  struct Reader {
    ClientId client;
    bool streaming;
    std::shared_ptr<Reading> reading;
    std::set<PinId> released;
    bool cancelled = false;
    size_t views_seen = 0;
    size_t voids_seen = 0;
  };
  struct Writing {
    ClientId client;
    WriteGrant grant;
    std::string content;
    uint64_t published = 0;
  };

  void Problem(absl::string_view what) { w_.problem.Update(absl::InternalError(what)); }
  int AnyId() { return static_cast<int>(random_.Below(kIds)); }
  template <typename T>
  T& Any(std::vector<T>& all) {
    return all[random_.Below(all.size())];
  }
  // Mostly the generation that peers hold now, sometimes an earlier or a later one; mostly of an
  // object that is wanted.
  Foreign AnyForeign() {
    int id = AnyId();
    if (!wanted_.empty() && random_.Chance(0.7)) {
      auto it = wanted_.begin();
      std::advance(it, random_.Below(wanted_.size()));
      id = Number(*ObjectId::FromBinary(*it));
    }
    const uint64_t current = 2 + deaths_[id];
    return MakeForeign(id, random_.Chance(0.85) ? current : current - 1 + 2 * random_.Below(2));
  }

  std::set<Generation> CompleteCopies() {
    std::set<Generation> complete;
    for (const auto& copy : w_.store().Copies()) {
      if (copy.complete) complete.insert(copy.generation);
    }
    return complete;
  }

  void Step() {
    const uint64_t dice = random_.Below(40);
    if (dice < 2) return Put();
    if (dice < 3) return Create();
    if (dice < 6) return Write();
    if (dice < 11) return Get();
    if (dice < 17) return EndReader();
    if (dice < 18) return Clients();
    if (dice < 26) return Peers();
    if (dice < 28) return Serve();
    if (dice < 30) return w_.Pass(absl::Milliseconds(random_.Below(400)));
    may_vanish_ = true;
    if (!asked_.empty() && dice < 34) return Answer();
    Shard();
  }

  void Answer() {
    const v1::EvictRequest request = asked_.front();
    asked_.erase(asked_.begin());
    w_.Shard(testing::EvictReply(*ObjectId::FromBinary(request.object_id()),
                                 directory::FromProto(request.generation()), random_.Chance(0.7)));
  }

  void Put() {
    PutOptions options;
    options.id = Id(AnyId());
    options.slices = 1 + static_cast<int>(random_.Below(3));
    options.wait_for_adoption = random_.Chance(0.3);
    if (random_.Chance(0.5)) options.deadline = w_.now() + absl::Seconds(1);
    options.metadata = Label(random_.Below(6000), ++contents_ + 100000);
    const std::string bytes = Labelled(options.metadata);
    if (random_.Chance(0.05)) w_.memory().FailNext(1);
    const bool waits = options.wait_for_adoption;
    const auto answer = w_.StartPut(options, bytes);
    if (waits && answer->has_value() && (*answer)->ok() && !(**answer)->already_existed &&
        verdicts_.count((**answer)->generation) == 0) {
      Problem("a Put that was to wait for adoption was acknowledged before");
    }
  }

  void Create() {
    PutOptions options;
    options.id = Id(AnyId());
    options.slices = 1 + static_cast<int>(random_.Below(3));
    options.deadline = w_.now();
    const ClientId client = Any(clients_);
    options.metadata = Label(random_.Below(6000), ++contents_ + 100000);
    const std::string content = Labelled(options.metadata);
    const auto answer = w_.StartCreate(options, content.size(), client);
    w_.Drain();
    if (!answer->has_value() || !(*answer)->ok()) return;
    writers_.push_back({client, ***answer, content, 0});
  }

  void Write() {
    if (writers_.empty()) return;
    const size_t i = random_.Below(writers_.size());
    Writing& writing = writers_[i];
    const double dice = random_.Unit();
    if (dice < 0.5) {
      const uint64_t to =
          writing.published + random_.Below(writing.content.size() - writing.published + 1);
      std::copy(writing.content.begin() + static_cast<ptrdiff_t>(writing.published),
                writing.content.begin() + static_cast<ptrdiff_t>(to),
                writing.grant.block->bytes().begin() + static_cast<ptrdiff_t>(writing.published));
      writing.published = to;
      w_.Run(
          [&] { w_.problem.Update(w_.store().Publish(writing.client, writing.grant.writer, to)); });
      return;
    }
    const Writing last = writing;
    writers_.erase(writers_.begin() + static_cast<ptrdiff_t>(i));
    w_.Run([&] {
      if (dice < 0.6) {
        w_.problem.Update(w_.store().Abort(last.client, last.grant.writer));
        return;
      }
      std::copy(last.content.begin() + static_cast<ptrdiff_t>(last.published), last.content.end(),
                last.grant.block->bytes().begin() + static_cast<ptrdiff_t>(last.published));
      w_.store().Seal(last.client, last.grant.writer, random_.Chance(0.3),
                      [](absl::StatusOr<PutResult>) {});
    });
  }

  void Get() {
    GetOptions options{Id(AnyId()), Instant::Infinite(), random_.Chance(0.5)};
    if (random_.Chance(0.5)) {
      options.deadline = w_.now() + absl::Milliseconds(random_.Below(1000));
    }
    const ClientId client = Any(clients_);
    const bool streaming = options.streaming;
    readers_.push_back({client, streaming, w_.Get(options, client), {}, false, 0, 0});
  }

  void EndReader() {
    if (readers_.empty()) return;
    const size_t i = random_.Below(readers_.size());
    if (random_.Chance(0.3)) Cancel(readers_[i]);
    Release(readers_[i]);
    if (random_.Chance(0.5)) return;
    // It wants nothing any more.
    Cancel(readers_[i]);
    Release(readers_[i]);
    readers_.erase(readers_.begin() + static_cast<ptrdiff_t>(i));
  }
  void Cancel(Reader& reader) {
    reader.cancelled = true;
    w_.Run([&] { w_.store().Cancel(reader.client, reader.reading->request); });
  }
  void Release(Reader& reader) {
    // Memory that is released may bring the reader's next view.
    for (size_t i = 0; i < reader.reading->views.size(); ++i) {
      const auto& view = reader.reading->views[i];
      if (!view.ok() || !reader.released.insert(view->pin).second) continue;
      const PinId pin = view->pin;
      const bool recycle = random_.Chance(0.9);
      w_.Run([&] { w_.problem.Update(w_.store().Release(reader.client, pin, recycle)); });
    }
  }

  void Clients() {
    if (clients_.size() < 4 && random_.Chance(0.6)) {
      clients_.push_back(w_.OpenClient());
      return;
    }
    if (clients_.size() == 1) return;
    const ClientId client = clients_.back();
    clients_.pop_back();
    w_.CloseClient(client, random_.Chance(0.5));
    std::erase_if(readers_, [&](const Reader& r) { return r.client == client; });
    std::erase_if(writers_, [&](const Writing& w) { return w.client == client; });
  }

  void Peers() {
    if (w_.pulls().size() == 0) return;
    const size_t i = random_.Below(w_.pulls().size());
    const net::PullSpec spec = w_.pulls().pull(i).spec;
    const std::string content =
        Labelled(MakeForeign(Number(spec.object), spec.generation.sequence).label);
    w_.Run([&] {
      const double dice = random_.Unit();
      if (dice < 0.4) {
        w_.pulls().Feed(i, content, 1 + random_.Below(3000));
      } else if (dice < 0.8) {
        w_.pulls().Finish(i, content);
        ++coverage_.completed_pulls;
      } else {
        w_.pulls().Feed(i, content, 1 + random_.Below(1000));
        w_.pulls().End(i, absl::UnavailableError("the peer died"));
      }
    });
  }

  void Serve() {
    if (!grants_.empty() && random_.Chance(0.4)) {
      w_.Run([&] { grants_.erase(grants_.begin()); });
      return;
    }
    const auto copies = w_.store().Copies();
    const Foreign foreign = AnyForeign();
    net::ServeRequest request{testing::kOther, foreign.id, foreign.generation, 1, "peer"};
    if (!copies.empty() && random_.Chance(0.5)) {
      const auto& copy = copies[random_.Below(copies.size())];
      request.object = copy.id;
      request.generation = copy.generation;
    }
    w_.Run([&] {
      absl::StatusOr<net::ServeGrant> grant = w_.store().Serve(request);
      bool there = false;
      for (const auto& copy : copies) {
        there = there || (copy.id == request.object && copy.generation == request.generation);
      }
      if (grant.ok() != there) Problem("served what is not here, or refused what is");
      if (grant.ok()) ++coverage_.served;
      if (grant.ok()) grants_.push_back(*std::move(grant));
    });
  }

  void Shard() {
    const Foreign foreign = AnyForeign();
    const auto copies = w_.store().Copies();
    const double dice = random_.Unit();
    if (dice < 0.6) {
      Provide(foreign);
    } else if (dice < 0.68) {
      may_vanish_ = false;
      Register();
    } else if (dice < 0.74) {
      v1::ShardMessage fetch;
      fetch.mutable_fetch()->set_object_id(IdBytes(foreign.id));
      fetch.mutable_fetch()->set_keep(random_.Chance(0.2));
      w_.Shard(fetch);
    } else if (dice < 0.8) {
      const auto kind = static_cast<v1::Gone::Kind>(2 + random_.Below(3));
      if (kind == v1::Gone::VOID) ++deaths_[Number(foreign.id)];
      w_.Shard(testing::Gone(foreign.id, foreign.generation, kind));
    } else if (!copies.empty()) {
      AboutACopy(copies[random_.Below(copies.size())]);
    }
  }

  void Provide(const Foreign& foreign) {
    const bool keep = random_.Chance(0.05);
    if (foreign.slices == 1 && random_.Chance(0.3)) {
      w_.Shard(testing::Deliver(foreign.id, foreign.generation, Labelled(foreign.label), keep,
                                foreign.label));
      return;
    }
    testing::AssignSpec spec{.size = foreign.size, .slices = foreign.slices, .keep = keep};
    spec.plan = ++plan_ - random_.Below(10) / 8;
    spec.sender = random_.Chance(0.5) ? kPeer : testing::kOther;
    spec.mask = random_.Chance(0.2) ? 1 : 0;
    spec.metadata = foreign.label;
    w_.Shard(testing::Assign(foreign.id, foreign.generation, spec));
  }

  static int Number(const ObjectId& id) {
    int number = 0;
    while (Id(number) != id) ++number;
    return number;
  }

  void AboutACopy(const Store::CopyInfo& copy) {
    const double dice = random_.Unit();
    if (dice < 0.4) {
      Delete(copy.id, copy.generation);
    } else if (dice < 0.5) {
      w_.Shard(testing::EvictReply(copy.id, copy.generation, random_.Chance(0.7)));
    } else {
      const auto kind = static_cast<v1::Verdict::Kind>(1 + random_.Below(4));
      if (kind == v1::Verdict::DELETED) NoteDeleted(copy.id, copy.generation);
      verdicts_.insert(copy.generation);
      w_.Shard(testing::Verdict(copy.id, copy.generation, kind, Generation{kPeer, 1},
                                copy.size_bytes + random_.Below(2)));
    }
  }

  void NoteDeleted(const ObjectId& id, const Generation& generation) {
    deleted_.insert({id, generation});
    if (generation.creator == kPeer) ++deaths_[Number(id)];
  }

  void Delete(const ObjectId& id, const Generation& generation) {
    NoteDeleted(id, generation);
    w_.Shard(testing::Gone(id, generation, v1::Gone::DELETED));
  }

  void Register() {
    w_.ForgetSent();
    w_.Run([&] { w_.channel().OnSession(0); });
    if (w_.Sent<v1::RegisterTombstone>().size() != deleted_.size()) {
      Problem("a tombstone was forgotten");
    }
  }

  // What must be true after any step.
  void Look(const std::set<Generation>& before) {
    std::set<Generation> now;
    for (const auto& copy : w_.store().Copies()) {
      if (copy.complete) now.insert(copy.generation);
      if (deleted_.count({copy.id, copy.generation}) != 0) Problem("a deleted copy is back");
    }
    for (const Generation& generation : before) {
      if (!may_vanish_ && now.count(generation) == 0) {
        Problem("a complete copy vanished without an order");
      }
    }
    for (Reader& reader : readers_) LookAt(reader);
    coverage_.waited_for_memory += w_.store().stats().waiting_for_memory > 0 ? 1 : 0;
  }

  void LookAt(Reader& reader) {
    const Reading& reading = *reader.reading;
    coverage_.views +=
        reading.views.size() - std::exchange(reader.views_seen, reading.views.size());
    coverage_.voids +=
        reading.voids.size() - std::exchange(reader.voids_seen, reading.voids.size());
    if (!reading.answered() || !reading.status().ok()) return;
    const View& view = reading.view();
    if (reader.released.count(view.pin) != 0) return;
    if (!reader.streaming && !view.buffer->complete()) Problem("a plain Get shows a partial copy");
    // One view for the first answer and one after each void; in between the reader must know.
    const bool dead = view.buffer->closed() && !view.buffer->complete();
    if (dead && !reader.cancelled && reading.voids.size() < reading.views.size()) {
      Problem("the store did not notify a reader that its bytes are void");
    }
    const std::string expected = Labelled(view.metadata);
    if (expected.size() != view.buffer->layout().object_bytes) return Problem("another size");
    for (int slice = 0; slice < view.buffer->layout().slices; ++slice) {
      const uint64_t begin = view.buffer->layout().Begin(slice);
      const uint64_t n = view.buffer->watermark(slice);
      if (expected.compare(begin, n, view.buffer->slice(slice).data(), n) != 0) {
        Problem("bytes of another generation are shown");
      }
    }
  }

  void End() {
    grants_.clear();
    w_.Run([&] { grants_.clear(); });
    for (const ClientId client : clients_) w_.CloseClient(client, true);
    readers_.clear();
    writers_.clear();
    // What is wanted on the node's own account ends with its object. Memory that is freed may
    // complete another.
    for (int id = 0; id < kIds; ++id) w_.Shard(testing::Gone(Id(id), {}, v1::Gone::REFUSED));
    for (auto copies = w_.store().Copies(); !copies.empty(); copies = w_.store().Copies()) {
      Delete(copies[0].id, copies[0].generation);
    }
    w_.Drain();
    const StoreStats stats = w_.store().stats();
    if (stats.used_bytes != 0 || stats.pins != 0 || stats.pinned_bytes != 0 ||
        stats.waiting_gets != 0 || stats.waiting_for_memory != 0 || stats.objects != 0) {
      Problem(absl::StrCat("not everything was given back: ", stats.used_bytes, " bytes, ",
                           stats.pins, " pins, ", stats.waiting_gets, " Gets, ",
                           stats.waiting_for_memory, " waiting, ", stats.objects, " objects"));
    }
    if (w_.memory().stats().allocated_bytes != 0) Problem("blocks outlive their copies");
  }
  Random random_;
  StoreWorld w_;
  std::vector<ClientId> clients_;
  std::vector<Reader> readers_;
  std::vector<Writing> writers_;
  std::vector<net::ServeGrant> grants_;
  std::set<Generation> verdicts_;
  std::set<std::string> wanted_;
  std::vector<v1::EvictRequest> asked_;
  std::map<int, uint64_t> deaths_;  // of the generations that peers held
  std::set<std::pair<ObjectId, Generation>> deleted_;
  uint64_t contents_ = 0;
  PlanId plan_ = 3;
  bool may_vanish_ = false;
  Coverage coverage_;
};

constexpr uint64_t kSeeds = 300;

TEST(StorePropertyTest, InvariantsHoldInRandomRuns) {
  Coverage c;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const uint64_t used = phalanx::testing::TestSeed(seed);
    PHALANX_TRACE_SEED(used);
    RandomRun run(used);
    ASSERT_THAT(run.Run(), IsOk());
    run.Add(c);
    if (phalanx::testing::SeedGiven()) return;
  }
  std::cout << c.views << " views, " << c.voids << " voids, " << c.evictions << " evictions, "
            << c.pulls << " pulls (" << c.completed_pulls << " fed to the end, " << c.failed_pulls
            << " failed), " << c.served << " pushes, " << c.conflicts << " conflicts, "
            << c.waited_for_memory << " steps with somebody waiting for memory\n";
  for (const uint64_t happened : {c.views, c.voids, c.evictions, c.completed_pulls, c.failed_pulls,
                                  c.served, c.conflicts, c.waited_for_memory}) {
    EXPECT_GE(happened, 100u);
  }
}

class StoreDefectTest : public ::testing::TestWithParam<Defect> {};

TEST_P(StoreDefectTest, IsFoundWithin200Seeds) {
  const ScopedDefect on(GetParam());
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const absl::Status status = RandomRun(seed).Run();
    if (status.ok()) continue;
    RecordProperty("seed", static_cast<int>(seed));
    std::cout << DefectName(GetParam()) << ": seed " << seed << ", " << status.message() << "\n";
    return;
  }
  FAIL() << DefectName(GetParam()) << " was not found";
}

INSTANTIATE_TEST_SUITE_P(
    Defects, StoreDefectTest,
    ::testing::Values(Defect::kNoGenerationCheck, Defect::kReaderNotVoided,
                      Defect::kCompleteForPartial, Defect::kLateCompletionAfterDelete,
                      Defect::kTombstoneForgottenAtRestart, Defect::kAckBeforeAdoption,
                      Defect::kFencedDropsSoleCopy, Defect::kPinDroppedOnReconnect,
                      Defect::kMemoryKeptAfterFailedPull, Defect::kEvictWithoutAsking),
    [](const ::testing::TestParamInfo<Defect>& info) {
      std::string name(DefectName(info.param));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace phalanx::object_store
