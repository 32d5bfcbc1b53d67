// A node's store against a shard that says anything, while clients put, get, write and delete and
// pulls go well or badly. Nothing may abort, and no invariant of the store may break.
//
// An input is a list of (what and which, argument, ...); what follows is told at each of them.
// Objects may be named by one byte (directory/fuzz/short_ids.h).
#include "src/object_store/testing/store_fuzz.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/directory/fuzz/short_ids.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store::testing {
namespace {

constexpr uint64_t kCapacity = 1 << 18;
constexpr int kMaxSteps = 200;
constexpr size_t kMaxOpen = 16;

class World {
 public:
  explicit World(const phalanx::testing::MessageListener& listener) : world_(kCapacity) {
    world_.quiet = true;
    world_.keep_sent = false;
    if (!listener) return;
    world_.on_sent = [&listener](int shard, const v1::NodeMessage& message) {
      listener(absl::StrCat(shard), message);
    };
  }

  void Play(absl::string_view input) {
    for (int step = 0; step < kMaxSteps && input.size() >= 2; ++step) {
      const auto what = static_cast<uint8_t>(input[0]);
      const auto argument = static_cast<uint8_t>(input[1]);
      input.remove_prefix(2);
      if ((what & 7) == 0) {
        const absl::string_view bytes = input.substr(0, argument);
        input.remove_prefix(bytes.size());
        Hear(bytes);
      } else {
        Step(what & 7, what >> 3, argument);
      }
      PHALANX_CHECK(world_.problem.ok(), world_.problem.message());
    }
  }

 private:
  static ObjectId Object(int which) {
    return *ObjectId::FromBinary(directory::LongId(static_cast<char>('a' + which % 4)));
  }
  // From nothing to what a node can hold four times at most.
  static uint64_t Size(uint8_t argument) { return uint64_t{argument} * argument; }

  void Hear(absl::string_view bytes) {
    v1::ShardMessage message;
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
    directory::ExpandIds(message);
    world_.Shard(message);
  }

  void Step(int what, int which, uint8_t argument) {
    switch (what) {
      case 1:
        return Put(which, argument);
      case 2:
        return Get(which, argument);
      case 3:
        return Write(which, argument);
      case 4:
        return Release(which, argument);
      case 5:
        return Pull(which, argument);
      case 6:
        return Ask(which, argument);
      default:
        if (which == 31) {
          world_.Run([this] { world_.channel().OnSession(0); });
        } else {
          world_.Pass(absl::Milliseconds(10) * argument);
        }
    }
  }

  void Put(int which, uint8_t argument) {
    PutOptions options;
    options.id = Object(which);
    options.wait_for_adoption = (which & 4) != 0;
    options.owned = (which & 8) != 0;
    if ((which & 16) != 0) options.refers_to = IdBytes(Object(which + 1));
    world_.StartPut(std::move(options), Content(Size(argument), 1));
  }

  void Get(int which, uint8_t argument) {
    if (readings_.size() >= kMaxOpen) return;
    GetOptions options;
    options.id = Object(which);
    options.streaming = (which & 4) != 0;
    options.fail_when_lost = (which & 8) != 0;
    options.deadline = world_.now() + absl::Milliseconds(100) * argument;
    readings_.push_back(world_.Get(std::move(options)));
  }

  void Write(int which, uint8_t argument) {
    if (which < 4 && writers_.size() < kMaxOpen) {
      PutOptions options;
      options.id = Object(which);
      options.slices = 1 + argument % 4;
      writers_.push_back(world_.StartCreate(std::move(options), Size(argument)));
      return;
    }
    if (writers_.empty()) return;
    const StoreWorld::CreateAnswer grant = writers_.front();
    if (!grant->has_value()) return;
    if (!(*grant)->ok()) return (void)writers_.erase(writers_.begin());
    const WriterId writer = (**grant)->writer;
    if (which < 16) {
      (void)world_.Publish(writer, Size(argument));
    } else if (which < 24) {
      world_.StartSeal(writer, (which & 1) != 0);
      writers_.erase(writers_.begin());
    } else {
      world_.Run([this, writer] { (void)world_.store().Abort(world_.client(), writer); });
      writers_.erase(writers_.begin());
    }
  }

  // Or cancels the Get that has no view yet.
  void Release(int which, uint8_t argument) {
    if (readings_.empty()) return;
    const auto reading = readings_.begin() + which % static_cast<int>(readings_.size());
    if (!(*reading)->answered()) {
      world_.Cancel((*reading)->request);
    } else {
      for (const auto& view : (*reading)->views) {
        if (view.ok()) (void)world_.Release(view->pin, argument != 0);
      }
    }
    readings_.erase(reading);
  }

  void Pull(int which, uint8_t argument) {
    world_.Run([this, which, argument] {
      if (world_.pulls().size() == 0) return;
      const size_t pull = static_cast<size_t>(which) % world_.pulls().size();
      const uint64_t size = world_.pulls().pull(pull).spec.into->layout().object_bytes;
      const std::string content = Content(size, 2);
      if (argument < 128) {
        (void)world_.pulls().Feed(pull, content, Size(argument));
      } else if (argument < 192) {
        world_.pulls().Finish(pull, content);
      } else {
        world_.pulls().End(pull, absl::Status(static_cast<absl::StatusCode>(1 + argument % 16),
                                              "as the input says"));
      }
    });
  }

  void Ask(int which, uint8_t argument) {
    const Instant deadline = world_.now() + absl::Seconds(1);
    world_.Run([&] {
      Store& store = world_.store();
      const ObjectId id = Object(which);
      if ((argument & 4) != 0) return Hold(id, argument >> 3);
      switch (argument & 3) {
        case 0:
          return store.Delete(world_.client(), id, deadline, [](absl::Status) {});
        case 1:
          return store.Stat(world_.client(), id, deadline, [](absl::StatusOr<ObjectStat>) {});
        case 2: {
          const RequestId request =
              store.Broadcast(world_.client(), id, {.nodes = {"*"}}, deadline, [](auto) {});
          return store.Cancel(world_.client(), request);
        }
        default:
          return store.Drain(deadline, [](absl::Status) {});
      }
    });
  }

  void Hold(const ObjectId& id, int what) {
    Store& store = world_.store();
    const ClientId client = world_.client();
    switch (what & 7) {
      case 0:
      case 1:
        return (void)store.Hold(client, {{id, Object((what >> 3) & 3)}});
      case 2:
      case 3:
        return store.Unhold(client, {{id, Object((what >> 3) & 3)}});
      case 4:
        return store.Transit(id, static_cast<uint64_t>(what >> 3));
      case 5:
        return (void)store.Claim(
            client, id,
            TransitMark{(what & 8) != 0 ? kSelf : kPeer, static_cast<uint64_t>(what >> 4)});
      case 6:
        return store.Keep(client, id, Instant::Infinite(), [](absl::Status) {});
      default:
        return store.UnholdAll(client);
    }
  }

  StoreWorld world_;
  std::vector<std::shared_ptr<Reading>> readings_;
  std::vector<StoreWorld::CreateAnswer> writers_;
};

}  // namespace

void PlayStoreInput(absl::string_view input, const phalanx::testing::MessageListener& listener) {
  World world(listener);
  world.Play(input);
}

}  // namespace phalanx::object_store::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  phalanx::object_store::testing::PlayStoreInput(
      absl::string_view(reinterpret_cast<const char*>(data), size), {});
  return 0;
}
