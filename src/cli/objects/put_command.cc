#include "src/cli/objects/put_command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "src/cli/objects/pipe_spool.h"
#include "src/cli/objects/wait_notice.h"
#include "src/cli/tools/object_lookup.h"
#include "src/cli/units.h"
#include "src/cli/views/progress_bar.h"
#include "src/common/ids/digest.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// The bytes that are read, and published to receivers, at a time.
constexpr size_t kChunkBytes = 1 << 20;
// The bytes of a pipe of unknown size that are read at a time, and the most that are kept in
// private memory.
constexpr size_t kPipeBytes = 4 << 20;
constexpr absl::Duration kBusyAfter = absl::Milliseconds(100);

// Returns how many bytes were read; fewer than asked for only at the end of the file.
absl::StatusOr<size_t> ReadFully(int fd, const std::string& path, absl::Span<char> into) {
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t size = read(fd, into.data() + done, into.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      return absl::UnavailableError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
    }
    if (size == 0) break;
    done += static_cast<size_t>(size);
  }
  return done;
}

class PutCommand : public Command {
 public:
  absl::string_view name() const override { return "put"; }
  absl::string_view summary() const override { return "Store a file; prints the object's id"; }
  absl::string_view details() const override {
    return "Others can get the object while the file is still being read. Without --id and --name\n"
           "the object gets a new random id.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("FILE", "The file to store; - is standard input", Text(&path_));
    flags.Argument("--id", "40 hexadecimal digits", Text(&object_.id, "ID"));
    flags.Argument("-n,--name", "The object's name, instead of its id",
                   Text(&object_.name, "NAME"));
    flags.Argument("--metadata", "Up to 4 KiB that travel with the object",
                   Text(&options_.metadata));
    flags.Argument("--slices", "Parts that can be sent over different paths",
                   Integer(&options_.slices, 1, 64));
    FlagValue size = ByteSize(&size_);
    // Zero is a size as well.
    size.parse = [this, parse = size.parse](const std::vector<std::string>& texts) {
      size_given_ = true;
      return parse(texts);
    };
    flags.Argument("--size",
                   "Number of bytes, if FILE is a pipe; others can get them while they arrive. "
                   "Another number is an error",
                   std::move(size));
    flags.Argument(
        "--exist-ok",
        "With --name, keep another object that exists under it; by default it is an error",
        Switch(&exist_ok_));
    flags.Argument("--ttl",
                   "Time to live: the object is deleted so long after its creation. An object that "
                   "exists keeps its own",
                   TimeSpan(&options_.ttl));
    flags.Argument("--copies",
                   "Keep so many copies, each on another host, and wait until they are there. An "
                   "object that exists gets so many, too",
                   Integer(&options_.copies, 1, kMaxObjectCopies));
    flags.Argument("--scope", "The scope of the object: `phalanx end-scope` frees it with others",
                   Text(&options_.scope.name, "NAME"));
    flags.Argument("--scope-number", "The number of the scope",
                   Integer(&scope_number_, 0, std::numeric_limits<int>::max()));
    flags.Argument("--wait", "Wait until the directory has adopted the object",
                   Switch(&options_.wait_for_adoption));
    flags.Argument("--timeout", "How long to wait for memory on the node",
                   TimeSpan(&options_.timeout));
    flags.Argument("--json", "Print a JSON object", Switch(&json_));
    flags.Argument("-q,--quiet", "No progress bar", Switch(&quiet_));
    AddNodeFlags(flags, &node_);
  }

  absl::Status Run() override {
    // Without a name every put is a new object, so repeated puts of a file do not conflict.
    ObjectId id = ObjectId::Random();
    if (!object_.id.empty() || !object_.name.empty()) {
      PHALANX_ASSIGN_OR_RETURN(id, NewObject(object_, node_.name_space));
    }
    int fd = STDIN_FILENO;
    if (path_ != "-") fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      const std::string text = absl::StrCat("cannot open ", path_, ": ", strerror(errno));
      return errno == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
    }
    // Standard input is closed too; the process ends soon.
    const auto closer = absl::MakeCleanup([fd] { close(fd); });
    struct stat info;
    // open succeeds for a folder, and only read would fail.
    if (fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path_, " is not a file"));
    }
    // The file is open by now, so a wrong path does not need a node to be reported.
    PHALANX_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client, ConnectToNode(node_));
    // From here on the client sends the name with the object.
    if (!object_.name.empty()) id = client->Id(object_.name);
    compares_ = !object_.name.empty() && !exist_ok_;
    // Another node can have the object: only the directory knows all of them.
    options_.wait_for_adoption = options_.wait_for_adoption || compares_;
    options_.wait_for_copies = options_.copies > 0;
    options_.scope.number = static_cast<uint64_t>(scope_number_);
    ProgressBar bar(absl::StrCat("put ", path_), !json_ && !quiet_);
    // Files of /proc report a size of 0, so they are read like a pipe.
    const bool regular = S_ISREG(info.st_mode) && info.st_size > 0;
    if (regular) PHALANX_RETURN_IF_ERROR(SetSize(static_cast<uint64_t>(info.st_size)));
    absl::StatusOr<PutResult> result = regular || size_given_
                                           ? PutSized(*client, id, fd, regular, bar)
                                           : PutUnsized(*client, id, fd, bar);
    if (!result.ok()) return result.status();
    if (compares_ && result->already_existed) PHALANX_RETURN_IF_ERROR(Compare(*client, id));
    bar.Clear();
    Report(id, *result, bar.elapsed());
    return absl::OkStatus();
  }

 private:
  // Returns InvalidArgument if --size names another size of the file.
  absl::Status SetSize(uint64_t file_bytes) {
    if (size_given_ && size_ != file_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, " has ", file_bytes, " bytes, but --size is ", size_, " bytes"));
    }
    size_ = file_bytes;
    return absl::OkStatus();
  }

  // An error for an input that is shorter or longer than size_.
  absl::Status WrongSize(const ObjectId& id, absl::string_view bytes, bool regular) const {
    const std::string what =
        absl::StrCat("put of ", id.hex(), ": ", path_ == "-" ? "standard input" : path_, bytes);
    // The file was shortened while it was read.
    if (regular) return absl::AbortedError(absl::StrCat(what, " of ", size_, " bytes"));
    return absl::InvalidArgumentError(
        absl::StrCat(what, " bytes, but --size is ", size_, " bytes"));
  }

  absl::StatusOr<WritableBuffer> Create(Client& client, const ObjectId& id, ProgressBar& bar) {
    const WaitNotice notice([this, &bar] { SayThatItWaits(bar); });
    return client.Create(id, size_, options_);
  }

  absl::StatusOr<PutResult> PutSized(Client& client, const ObjectId& id, int fd, bool regular,
                                     ProgressBar& bar) {
    PHALANX_ASSIGN_OR_RETURN(WritableBuffer buffer, Create(client, id, bar));
    uint64_t done = 0;
    while (done < size_) {
      const size_t chunk = std::min<uint64_t>(kChunkBytes, size_ - done);
      PHALANX_ASSIGN_OR_RETURN(const size_t got,
                               ReadFully(fd, path_, buffer.span().subspan(done, chunk)));
      done += got;
      if (compares_) read_.Append(absl::string_view(buffer.span().data() + done - got, got));
      // The writer's destructor aborts the object.
      if (got < chunk) {
        return WrongSize(id, absl::StrCat(" ended early, after ", done), regular);
      }
      bar.Update(done, size_);
      // Receivers can relay the bytes from here on. Seal publishes the last ones, after the end of
      // a pipe has been seen.
      if (done < size_) PHALANX_RETURN_IF_ERROR(buffer.Publish(done));
    }
    char more = 0;
    PHALANX_ASSIGN_OR_RETURN(const size_t after, ReadFully(fd, path_, absl::MakeSpan(&more, 1)));
    if (after > 0 && !regular) {
      return WrongSize(id, absl::StrCat(" has at least ", done + 1), /*regular=*/false);
    }
    const Future<PutResult> sealed = buffer.Seal();
    // The bar would show the rate of the reading while a busy node is waited for.
    if (absl::IsDeadlineExceeded(sealed.Wait(kBusyAfter).status()) && !sealed.ready()) {
      bar.Say("waits for the node");
    }
    return sealed.Wait();
  }

  // Small inputs of unknown size are one message to the node; others wait in a spool for their end.
  absl::StatusOr<PutResult> PutUnsized(Client& client, const ObjectId& id, int fd,
                                       ProgressBar& bar) {
    // Not cleared: most pipes are much smaller.
    const auto memory = std::make_unique_for_overwrite<char[]>(kPipeBytes);
    const absl::Span<char> bytes(memory.get(), kPipeBytes);
    PHALANX_ASSIGN_OR_RETURN(size_t got, ReadFully(fd, path_, bytes));
    if (got < bytes.size()) {
      size_ = got;
      if (compares_) read_.Append(absl::string_view(memory.get(), got));
      const auto put = client.Put(id, absl::string_view(memory.get(), got), options_);
      if (!put.Wait(WaitNotice::kSilent).ok() && !put.ready()) SayThatItWaits(bar);
      return put.Wait();
    }
    PHALANX_ASSIGN_OR_RETURN(
        PipeSpool spool, PipeSpool::Make(client, options_, [this, &bar] { SayThatItWaits(bar); }));
    while (got > 0) {
      PHALANX_RETURN_IF_ERROR(spool.Append(absl::string_view(memory.get(), got)));
      bar.Say(absl::StrCat("has read ", HumanBytes(spool.size())));
      PHALANX_ASSIGN_OR_RETURN(got, ReadFully(fd, path_, bytes));
    }
    size_ = spool.size();
    PHALANX_ASSIGN_OR_RETURN(const int file, spool.Finish());
    return PutSized(client, id, file, /*regular=*/true, bar);
  }

  // Returns AlreadyExists unless the object that exists has the bytes that were read.
  absl::Status Compare(Client& client, const ObjectId& id) const {
    GetOptions options;
    options.timeout = options_.timeout;
    // The object existed just now: if it is lost, waiting for it could take forever.
    options.on_lost = GetOptions::OnLost::kFail;
    PHALANX_ASSIGN_OR_RETURN(const Buffer there, client.Get(id, options).Wait());
    if (there.metadata() == options_.metadata && DigestOf(there.view()) == read_.digest()) {
      return absl::OkStatus();
    }
    return absl::AlreadyExistsError(absl::StrCat(
        "put of \"", object_.name, "\" (", id.hex(),
        "): another object exists under this name, and stays: remove it first (phalanx "
        "rm --name), or put with --exist-ok"));
  }

  // Once also without a terminal: the log of a job shows then why it hangs.
  void SayThatItWaits(ProgressBar& bar) {
    bar.Say("waits for the node");
    if (std::exchange(said_that_it_waits_, true) || quiet_ || json_ || bar.shown()) return;
    std::cerr << "phalanx put: the node has no memory yet, or is busy; --timeout limits the wait"
              << std::endl;
  }

  void Report(const ObjectId& id, const PutResult& result, absl::Duration elapsed) const {
    if (json_) {
      std::cout << nlohmann::json{{"id", id.hex()},
                                  {"size_bytes", size_},
                                  {"seconds", absl::ToDoubleSeconds(elapsed)},
                                  {"already_existed", result.already_existed}}
                << std::endl;
      return;
    }
    std::cout << id.hex() << std::endl;
    if (result.already_existed) {
      std::cerr << (compares_ ? "The object already exists."
                              : "An object of this size already exists; it was kept.")
                << std::endl;
    } else if (!quiet_ && isatty(STDERR_FILENO) == 1) {
      std::cerr << RenderSummary(size_, elapsed) << std::endl;
    }
  }

  std::string path_;
  ObjectFlags object_;
  PutOptions options_;
  int scope_number_ = 0;
  // Of --size, and later of the object.
  uint64_t size_ = 0;
  bool size_given_ = false;
  bool exist_ok_ = false;
  // An object that exists is compared by the digest of what was read.
  bool compares_ = false;
  DigestStream read_;
  bool said_that_it_waits_ = false;
  bool json_ = false;
  bool quiet_ = false;
  NodeFlags node_;
};

}  // namespace

std::unique_ptr<Command> NewPutCommand() { return std::make_unique<PutCommand>(); }

}  // namespace phalanx::runtime
