// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <array>
#include <memory>
#include <string_view>

#include "chunk/text/json_value.h"
#include "tools/cli/flags.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/doctor/doctor.h"
#include "tools/commands/machine_forms.h"
#include "tools/commands/registry.h"

namespace castor {
namespace {

constexpr char kFooter[] =
    R"(Each finding is one of three. Ok: nothing to do. Hurts: Castor does the same, slower or with
less. Blocks: Castor cannot do what you asked for, and the exit code is 5. Each has its numbers,
its consequence and a remedy. The command changes nothing. In each folder of --nvme it makes and
removes an empty file, as a run would.

Examples:
  castor doctor
  castor doctor --nvme /mnt/nvme0:500GiB --nvme /mnt/nvme1:500GiB
  castor doctor --json
  lstopo other.xml; castor doctor --topology other.xml     (nodes of another machine)
)";

// By Severity.
constexpr std::array<std::string_view, 3> kNames = {"blocks", "hurts", "ok"};

std::string_view NameOf(const Finding& finding) {
  return kNames[static_cast<size_t>(finding.severity)];
}

JsonValue FindingJson(const Finding& finding) {
  JsonValue json = Fields({{"id", finding.id},
                           {"severity", NameOf(finding)},
                           {"subject", finding.subject},
                           {"fact", finding.fact}});
  if (finding.severity == Severity::kOk) return json;
  json["consequence"] = finding.consequence;
  json["fix"] = finding.fix;
  return json;
}

class DoctorCommand final : public Command {
 public:
  std::string_view name() const override { return "doctor"; }
  std::string_view summary() const override {
    return "what of this machine will hurt, and what to do about it";
  }

  void Declare(CLI::App& app) override {
    AddTextListFlag(app, "--nvme", &nvme_,
                    "DIR[:SIZE]: folder that a run would use, and how much of "
                    "it; once per drive");
    AddTextFlag(app, "--topology", &topology_,
                "what hwloc wrote (lstopo FILE.xml), instead of looking",
                "FILE");
    AddSwitch(app, "--json", &json_, "print one JSON document");
    SetHelpFooter(app, kFooter);
  }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(const MachineFacts facts,
                            ReadMachineFacts(nvme_, topology_));
    const std::vector<Finding> findings = FindingsOf(facts);
    Print(DoctorDocument(facts, findings), json_ ? Form::kJson : Form::kPage,
          console);
    return DoctorStatus(findings);
  }

 private:
  std::vector<std::string> nvme_;
  std::string topology_;
  bool json_ = false;
};

}  // namespace

Document DoctorDocument(const MachineFacts& facts,
                        const std::vector<Finding>& findings) {
  Document document("castor.doctor/1");
  JsonValue topology;
  if (facts.topology.ok()) {
    document.Say("Machine", TopologyText(*facts.topology));
    document.Gap();
    topology = TopologyJson(*facts.topology);
  }
  std::array<int64_t, kNames.size()> counts = {};
  for (size_t i = 0; i < kNames.size(); ++i) {
    for (const Finding& finding : findings) {
      if (NameOf(finding) != kNames[i]) continue;
      ++counts[i];
      document.Say(kNames[i], finding.subject + ": " + finding.fact);
      if (finding.severity == Severity::kOk) continue;
      document.Say("", finding.consequence);
      document.SayUnbroken("  fix", finding.fix);
    }
    document.Set(kNames[i], counts[i]);
  }
  const auto [blocks, hurts, ok] = counts;
  document.Gap();
  document.Text(fmt::format("{} ok, {} hurt, {} block\n", ok, hurts, blocks));
  if (blocks == 0) {
    document.SayUnbroken("Next",
                         "castor probe -o machine.json   how fast it is");
  }
  document.Set("findings", ListOf(findings, FindingJson));
  document.Set("topology", topology);
  return document;
}

Status DoctorStatus(const std::vector<Finding>& findings) {
  std::vector<std::string> blocking;
  for (const Finding& one : findings) {
    if (one.severity == Severity::kBlocks) blocking.push_back(one.subject);
  }
  if (blocking.empty()) return OkStatus();
  return Unavailable(fmt::format("blocked by {}; the fixes are above",
                                 JoinedWithAnd(blocking)));
}

std::unique_ptr<Command> MakeDoctorCommand() {
  return std::make_unique<DoctorCommand>();
}

}  // namespace castor
