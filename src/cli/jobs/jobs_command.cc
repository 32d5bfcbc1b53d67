#include "src/cli/jobs/jobs_command.h"

#include <iostream>

#include "src/cli/jobs/job_view.h"
#include "src/cli/tools/directory_connection.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

class JobsCommand : public Command {
 public:
  absl::string_view name() const override { return "jobs"; }
  absl::string_view summary() const override { return "List the jobs whose tasks have joined"; }
  absl::string_view details() const override {
    return "`phalanx describe --job NAME` shows the members of one. A job is forgotten a minute "
           "after\n"
           "its last member has ended.";
  }

  void AddFlags(Flags& flags) override {
    flags.Argument("--limit", "List at most this many", Integer(&limit_, 1, 10000));
    flags.Argument("--json", "Print a JSON object per line", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(directory_));
    PHALANX_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs,
                             directory.tools->ListJobs(static_cast<uint32_t>(limit_)));
    if (json_) {
      for (const v1::JobSummary& job : jobs.jobs()) std::cout << JobAsJson(job) << "\n";
    } else {
      std::cout << JobsAsTable(jobs);
    }
    std::cout << std::flush;
    // To stderr, so that a program which reads the table sees rows only.
    if (jobs.more() && !json_) std::cerr << "There are more jobs; see --limit." << std::endl;
    return absl::OkStatus();
  }

 private:
  int limit_ = 1000;
  bool json_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewJobsCommand() { return std::make_unique<JobsCommand>(); }

}  // namespace phalanx::runtime
