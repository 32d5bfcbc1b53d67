#include "src/cli/jobs/job_view.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "src/cli/views/text_table.h"

namespace phalanx::runtime {
namespace {

double Seconds(uint64_t nanos) { return static_cast<double>(nanos) / 1e9; }

// "3.2s", "5m3s": the tenths of a second only of short times.
std::string TimeText(uint64_t nanos) {
  const absl::Duration time = absl::Nanoseconds(static_cast<int64_t>(nanos));
  return absl::FormatDuration(
      absl::Trunc(time, time < absl::Minutes(1) ? absl::Milliseconds(100) : absl::Seconds(1)));
}

std::string StateText(v1::JobMember::State state) {
  switch (state) {
    case v1::JobMember::LIVE:
      return "live";
    case v1::JobMember::DIED:
      return "died";
    case v1::JobMember::LEFT:
      return "left";
    default:
      return "unknown";
  }
}

std::string EpochText(const v1::JobEpoch& epoch) {
  return absl::StrFormat("%x.%d", epoch.incarnation(), epoch.counter());
}

std::string RoleOf(const v1::DescribeJobResponse& job, const v1::JobMember& member) {
  // The directory sends positions. One that is out of range must not end the tool.
  const auto roles = static_cast<uint32_t>(job.summary().roles_size());
  return member.role() < roles ? job.summary().roles(static_cast<int>(member.role())).name() : "";
}

std::string EndText(const v1::JobSummary& job) {
  return job.ends_in_ns() == 0 ? "" : absl::StrCat("forgotten in ", TimeText(job.ends_in_ns()));
}

// A program has written it: each line may have anything in it.
std::string PrintableLines(absl::string_view text) {
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&lines, Printable(std::string(line)), "\n");
  }
  return lines;
}

}  // namespace

nlohmann::json JobAsJson(const v1::JobSummary& job) {
  nlohmann::json roles = nlohmann::json::array();
  for (const v1::JobSummary::Role& role : job.roles()) {
    roles.push_back({{"name", Printable(role.name())},
                     {"world", role.world()},
                     {"live", role.live()},
                     {"died", role.died()},
                     {"left", role.left()}});
  }
  nlohmann::json json = {{"job", Printable(job.job())},
                         {"epoch", {job.epoch().incarnation(), job.epoch().counter()}},
                         {"roles", std::move(roles)},
                         {"nodes", job.nodes()},
                         {"age_s", Seconds(job.age_ns())},
                         {"ends_in_s", nullptr}};
  if (job.ends_in_ns() != 0) json["ends_in_s"] = Seconds(job.ends_in_ns());
  return json;
}

std::string JobsAsTable(const v1::ListJobsResponse& jobs) {
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "ROLE", "WORLD", "LIVE", "DIED", "LEFT", "NODES", "AGE", "EPOCH", "NOTES"}};
  for (const v1::JobSummary& job : jobs.jobs()) {
    for (const v1::JobSummary::Role& role : job.roles()) {
      rows.push_back({Printable(job.job()), Printable(role.name()), absl::StrCat(role.world()),
                      absl::StrCat(role.live()), absl::StrCat(role.died()),
                      absl::StrCat(role.left()), absl::StrCat(job.nodes()), TimeText(job.age_ns()),
                      EpochText(job.epoch()), EndText(job)});
    }
  }
  return AlignColumns(rows, {false, false, true, true, true, true, true, true, false, false});
}

nlohmann::json JobDescriptionAsJson(const v1::DescribeJobResponse& job,
                                    const std::vector<DescribedServer>& servers) {
  nlohmann::json json = JobAsJson(job.summary());
  json["members"] = nlohmann::json::array();
  for (const v1::DescribeJobResponse::Member& described : job.members()) {
    const v1::JobMember& member = described.member();
    json["members"].push_back({{"role", Printable(RoleOf(job, member))},
                               {"rank", member.rank()},
                               {"task", Printable(member.task())},
                               {"life", member.life()},
                               {"state", StateText(member.state())},
                               {"node", Printable(member.node_name())},
                               {"host", Printable(member.host())},
                               {"since_s", Seconds(described.since_ns())}});
  }
  for (const DescribedServer& server : servers) {
    nlohmann::json& entry = json["servers"].emplace_back();
    entry = {{"role", Printable(server.role)}, {"rank", server.rank}};
    if (server.text.ok()) {
      entry["text"] = PrintableLines(*server.text);
    } else {
      entry["error"] = Printable(server.text.status().message());
    }
  }
  return json;
}

std::string ServersAsText(const std::vector<DescribedServer>& servers) {
  std::string text;
  for (const DescribedServer& server : servers) {
    absl::StrAppend(&text, "\n",
                    server.text.ok()
                        ? PrintableLines(*server.text)
                        : absl::StrCat(Printable(server.role), " ", server.rank, ": ",
                                       Printable(server.text.status().message()), "\n"));
  }
  return text;
}

std::string JobAsText(const v1::DescribeJobResponse& job) {
  std::string text = absl::StrCat("job ", Printable(job.summary().job()), ", epoch ",
                                  EpochText(job.summary().epoch()), ", ",
                                  TimeText(job.summary().age_ns()), " old");
  const std::string end = EndText(job.summary());
  absl::StrAppend(&text, end.empty() ? "" : ", ", end, "\n");
  std::vector<std::vector<std::string>> rows = {
      {"ROLE", "RANK", "TASK", "LIFE", "STATE", "SINCE", "NODE", "HOST"}};
  for (const v1::DescribeJobResponse::Member& described : job.members()) {
    const v1::JobMember& member = described.member();
    rows.push_back({Printable(RoleOf(job, member)), absl::StrCat(member.rank()),
                    Printable(member.task()), absl::StrCat(member.life()),
                    StateText(member.state()), TimeText(described.since_ns()),
                    Printable(member.node_name()), Printable(member.host())});
  }
  absl::StrAppend(&text, AlignColumns(rows, {false, true, false, true, false, true, false, false}));
  for (const v1::JobSummary::Role& role : job.summary().roles()) {
    const uint64_t joined = uint64_t{role.live()} + role.died() + role.left();
    if (joined >= role.world()) continue;
    absl::StrAppend(&text, role.world() - joined, " of ", role.world(), " tasks of role ",
                    Printable(role.name()), " have not joined\n");
  }
  return text;
}

}  // namespace phalanx::runtime
