#include "src/cli/objects/rm_command.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/cli/tools/name_pattern.h"
#include "src/cli/tools/object_lookup.h"
#include "src/cli/views/object_names.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// Deletes that are under way at a time.
constexpr size_t kWindow = 256;

class RmCommand : public Command {
 public:
  absl::string_view name() const override { return "rm"; }
  absl::string_view summary() const override { return "Delete objects everywhere"; }
  absl::string_view details() const override {
    return "Processes that have an object open can still read it. Tries all objects and returns "
           "the\n"
           "first error. In a NAME, * stands for any characters, also /, and ? for one: all "
           "objects\n"
           "of the namespace with such names are deleted, and their number is printed.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("ID", "Objects, 40 hexadecimal digits each, or the first of them",
                     Texts(&ids_, "ID"), /*required=*/false);
    flags.Argument("-n,--name", "Objects by their names, or by patterns of names",
                   Texts(&names_, "NAME"));
    flags.Argument("--dry-run", "Delete nothing; print the objects", Switch(&dry_run_));
    flags.Argument("--timeout", "Stop waiting after this time", TimeSpan(&timeout_));
    flags.Argument("-f,--force", "Ignore objects that do not exist", Switch(&force_));
    flags.Argument("--json", "Print a JSON object per object", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    if (ids_.empty() && names_.empty()) {
      return absl::InvalidArgumentError("give at least one id or --name");
    }
    // All ids are found before the first Delete, so that a typing error deletes nothing.
    for (const std::string& id : ids_) PHALANX_RETURN_IF_ERROR(CheckObject({id, ""}));
    PHALANX_ASSIGN_OR_RETURN(client_, ConnectToNode(directory_.node));
    for (const std::string& id : ids_) {
      PHALANX_ASSIGN_OR_RETURN(const ObjectId object,
                               FindObject({id, ""}, directory_, client_.get()));
      Add(object, "");
    }
    bool patterns = false;
    for (const std::string& name : names_) {
      patterns = patterns || IsPattern(name);
      if (!IsPattern(name)) Add(client_->Id(name), name);
    }
    if (patterns) PHALANX_RETURN_IF_ERROR(FindMatching());
    if (dry_run_) return PrintObjects();
    const absl::Status first_error = DeleteAll();
    if (patterns && !json_) {
      std::cout << "deleted " << deleted_ << (deleted_ == 1 ? " object" : " objects") << std::endl;
    }
    return first_error;
  }

 private:
  struct Found {
    ObjectId id;
    std::string name;
  };

  // Arguments can mean one object several times.
  void Add(const ObjectId& id, const std::string& name) {
    if (found_.insert(id).second) objects_.push_back({id, name});
  }

  // Adds the objects with names that match one of the patterns.
  absl::Status FindMatching() {
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory,
                             ConnectToDirectory(directory_, client_.get()));
    std::vector<std::string> unmatched;
    for (const std::string& name : names_) {
      if (IsPattern(name)) unmatched.push_back(name);
    }
    const std::vector<std::string> patterns = unmatched;
    const auto visit = [&](const v1::ObjectSummary& object) {
      // What is only waited for cannot be deleted.
      const bool exists = object.has_info() || object.reducing();
      if (!exists || object.name().name_space() != directory_.node.name_space) return true;
      bool matches = false;
      for (const std::string& pattern : patterns) {
        if (!MatchesPattern(object.name().name(), pattern)) continue;
        matches = true;
        std::erase(unmatched, pattern);
      }
      // The name derives the id, whatever id the shard sends.
      if (matches) Add(client_->Id(object.name().name()), object.name().name());
      return true;
    };
    PHALANX_RETURN_IF_ERROR(VisitObjects(*directory.tools, std::nullopt,
                                         /*with_deleted=*/false, visit));
    if (unmatched.empty() || force_) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("no object of namespace \"", directory_.node.name_space,
                                            "\" has a name like \"", unmatched.front(), "\""));
  }

  absl::Status PrintObjects() const {
    for (const Found& object : objects_) {
      if (json_) {
        std::cout << JsonOf(object) << "\n";
      } else {
        std::cout << object.id.hex() << (object.name.empty() ? "" : "  ") << object.name << "\n";
      }
    }
    std::cout << std::flush;
    return absl::OkStatus();
  }

  // The exit code is that of the first error; the JSON lines have the others.
  absl::Status DeleteAll() {
    absl::Status first_error;
    for (size_t begin = 0; begin < objects_.size(); begin += kWindow) {
      const size_t end = std::min(begin + kWindow, objects_.size());
      std::vector<Future<Done>> deletes;
      for (size_t i = begin; i < end; ++i) {
        deletes.push_back(client_->Delete(objects_[i].id, timeout_));
      }
      // Continues after an error: the other objects can still be deleted.
      for (size_t i = begin; i < end; ++i) {
        absl::Status status = deletes[i - begin].Wait().status();
        deleted_ += status.ok() ? 1 : 0;
        if (json_) {
          nlohmann::json json = JsonOf(objects_[i]);
          json["deleted"] = status.ok();
          json["code"] = absl::StatusCodeToString(status.code());
          std::cout << json << std::endl;
        }
        // After the JSON line, which always reports the real code.
        if (force_ && absl::IsNotFound(status)) status = absl::OkStatus();
        first_error.Update(status);
      }
    }
    return first_error;
  }

  static nlohmann::json JsonOf(const Found& object) {
    nlohmann::json json = {{"id", object.id.hex()}, {"name", nullptr}};
    if (!object.name.empty()) json["name"] = object.name;
    return json;
  }

  std::vector<std::string> ids_;
  std::vector<std::string> names_;
  bool dry_run_ = false;
  absl::Duration timeout_ = absl::Seconds(30);
  bool force_ = false;
  bool json_ = false;
  DirectoryFlags directory_;
  std::shared_ptr<Client> client_;
  std::vector<Found> objects_;
  absl::flat_hash_set<ObjectId> found_;
  size_t deleted_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewRmCommand() { return std::make_unique<RmCommand>(); }

}  // namespace phalanx::runtime
