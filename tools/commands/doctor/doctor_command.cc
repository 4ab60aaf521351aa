// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/doctor_command.h"

#include <ostream>

#include "tools/cli/flags.h"
#include "tools/cli/json_out.h"
#include "tools/cli/text_table.h"
#include "tools/commands/doctor/doctor_report.h"
#include "tools/commands/doctor/doctor_run.h"
#include "tools/commands/doctor/doctor_system.h"

namespace castor {
namespace {

constexpr char kFooter[] =
    R"(Each finding is ok, hurts (Castor does the same, slower or with less) or blocks (what
was asked for cannot be done), with the numbers, what follows, and what to do. Exit code 5
when anything blocks. Nothing is changed: in each folder of --nvme an empty file is made
and removed, as a run would.

Examples:
  castor doctor
  castor doctor --nvme /mnt/nvme0:500GiB --nvme /mnt/nvme1:500GiB
  castor doctor --json
  lstopo other.xml; castor doctor --topology other.xml     (nodes of another machine)
)";

class DoctorCommand final : public Command {
 public:
  std::string_view name() const override { return "doctor"; }
  std::string_view summary() const override {
    return "what of this machine will hurt, and what to do about it";
  }

  void Declare(CLI::App& app) override {
    AddTextListFlag(app, "--nvme", &request_.nvme,
                    "DIR[:SIZE]: folder that a run would use, and how much of "
                    "it; once per drive");
    AddTextFlag(app, "--topology", &request_.topology,
                "what hwloc wrote (lstopo FILE.xml), instead of looking",
                "FILE");
    AddSwitch(app, "--json", &request_.json, "print one JSON document");
    SetHelpFooter(app, kFooter);
  }

  Status Run(const Console& console) override {
    CASTOR_ASSIGN_OR_RETURN(const DoctorReport report,
                            RunDoctor(request_, DoctorSystem()));
    if (request_.json) {
      WriteJson(DoctorJson(report), console.out);
    } else {
      console.out << DoctorText(
          report, console.colour ? Emphasis::kTerminal : Emphasis::kNone);
    }
    return DoctorStatus(report);
  }

 private:
  DoctorRequest request_;
};

}  // namespace

std::unique_ptr<Command> MakeDoctorCommand() {
  return std::make_unique<DoctorCommand>();
}

}  // namespace castor
