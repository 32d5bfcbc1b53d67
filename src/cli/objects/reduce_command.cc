#include "src/cli/objects/reduce_command.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "phalanx/elements.h"
#include "src/cli/objects/element_flags.h"
#include "src/cli/tools/object_lookup.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

class ReduceCommand : public Command {
 public:
  absl::string_view name() const override { return "reduce"; }
  absl::string_view summary() const override {
    return "Reduce objects element-wise into a new object";
  }
  absl::string_view details() const override {
    return "The sources can be put later; with --num-objects some of them can stay missing. Prints "
           "the\n"
           "reduced sources at the end. --reduced-from TARGET prints them for an existing object. "
           "The\n"
           "reduction continues if this command is interrupted.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("TARGET", "The object to create, 40 hexadecimal digits", Text(&target_, "ID"));
    flags.Positional("SOURCE", "Objects of the same size", Texts(&sources_, "ID"),
                     /*required=*/false);
    flags.Argument("--names", "TARGET and SOURCEs are names", Switch(&names_));
    flags.Argument("--dtype", "Type of the elements", DTypeChoice(&dtype_));
    flags.Argument("--op", "The operation", ReduceOpChoice(&op_));
    flags.Argument("--num-objects", "Number of sources to reduce, the first to arrive; 0: all",
                   Integer(&num_objects_, 0, static_cast<int>(kMaxReductionSources)));
    flags.Argument("--order", "Order of the fold: as sources arrive, or as listed (slower)",
                   Choice(&order_, {"arrival", "fixed"}));
    flags.Argument("--root", "Node of the result: this node, or any node",
                   Choice(&root_, {"caller", "any"}));
    flags.Argument("--offset", "Start of a range of each source", ByteSize(&options_.offset));
    flags.Argument("--length", "Length of the range; 0: the whole source",
                   ByteSize(&options_.length));
    flags.Argument("--timeout", "Timeout; it also ends the reduction", TimeSpan(&timeout_));
    flags.Argument("--reduced-from", "Reduce nothing; print the sources of TARGET",
                   Switch(&reduced_from_));
    flags.Argument("--json", "Print a JSON object", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    // All arguments are checked before the node is asked for anything.
    PHALANX_RETURN_IF_ERROR(CheckObject(FlagsOf(target_)));
    for (const std::string& source : sources_) {
      PHALANX_RETURN_IF_ERROR(CheckObject(FlagsOf(source)));
    }
    // With sources the caller probably meant to reduce; running neither is safer.
    if (reduced_from_ && !sources_.empty()) {
      return absl::InvalidArgumentError("--reduced-from takes no sources");
    }
    PHALANX_RETURN_IF_ERROR(SetOptions());
    PHALANX_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client, ConnectToNode(directory_.node));
    PHALANX_ASSIGN_OR_RETURN(const ObjectId target,
                             FindObject(FlagsOf(target_), directory_, client.get()));
    std::vector<ObjectId> sources;
    for (const std::string& source : sources_) {
      PHALANX_ASSIGN_OR_RETURN(sources.emplace_back(),
                               FindObject(FlagsOf(source), directory_, client.get()));
    }
    // Waits for the commit, so that the sources below are final.
    if (!reduced_from_) {
      PHALANX_RETURN_IF_ERROR(client->Reduce(target, sources, options_).Wait().status());
    }
    // The order of the fold, or the chosen subset, is known only after the reduction.
    PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> from,
                             client->ReducedFrom(target, timeout_).Wait());
    Print(target, from);
    return absl::OkStatus();
  }

 private:
  // --names applies to all objects of the call; mixing ids and names would be ambiguous.
  ObjectFlags FlagsOf(const std::string& text) const {
    return names_ ? ObjectFlags{"", text} : ObjectFlags{text, "", "--names"};
  }

  // The choices are checked by the flags, so only the types can fail here.
  absl::Status SetOptions() {
    PHALANX_ASSIGN_OR_RETURN(options_.dtype, ParseDType(dtype_));
    PHALANX_ASSIGN_OR_RETURN(options_.op, ParseReduceOp(op_));
    options_.num_objects = static_cast<size_t>(num_objects_);
    options_.order =
        order_ == "fixed" ? ReduceOptions::Order::kFixed : ReduceOptions::Order::kArrival;
    options_.root = root_ == "any" ? ReduceOptions::Root::kAny : ReduceOptions::Root::kCaller;
    options_.timeout = timeout_;
    return absl::OkStatus();
  }

  void Print(const ObjectId& target, const std::vector<ObjectId>& from) const {
    if (!json_) {
      // One id per line, in the order of the fold, for other programs.
      for (const ObjectId& source : from) std::cout << source.hex() << "\n";
    } else {
      nlohmann::json ids = nlohmann::json::array();
      for (const ObjectId& source : from) ids.push_back(source.hex());
      std::cout << nlohmann::json{{"id", target.hex()}, {"reduced_from", ids}} << "\n";
    }
    std::cout << std::flush;
  }

  std::string target_;
  std::vector<std::string> sources_;
  bool names_ = false;
  std::string dtype_ = "f32";
  std::string op_ = "sum";
  int num_objects_ = 0;
  std::string order_ = "arrival";
  std::string root_ = "caller";
  ReduceOptions options_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool reduced_from_ = false;
  bool json_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewReduceCommand() { return std::make_unique<ReduceCommand>(); }

}  // namespace phalanx::runtime
