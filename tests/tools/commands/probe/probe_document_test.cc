// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How what was measured is said, of a report that is made up.

#include <string>

#include "gtest/gtest.h"
#include "tools/commands/probe/probe_run.h"

namespace castor {
namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

ProbeReport Report() {
  ProbeReport report;
  report.model.host_to_device = LinkModel{12'340'000'000, 1'500};
  report.model.memory = RateModel{20'000'000'000};
  report.links = {
      {.name = "host_to_device",
       .words = "host to device",
       .bytes_per_second = 12'340'000'000,
       .error = 0.031,
       .latency_ns = 1'500,
       .points = {{.bytes = MiB(1), .seconds = 8.6e-5, .samples = 9},
                  {.bytes = MiB(64), .seconds = 5.4e-3, .samples = 7}}}};
  report.rates = {{.name = "memory",
                   .words = "host memory, 2 threads",
                   .bytes_per_second = 20'000'000'000,
                   .error = 0.02,
                   .samples = 5}};
  report.unmeasured = {{"NVMe", "no --nvme DIR was given"}};
  report.instruction_set = "AVX2";
  report.device = "simulated device";
  report.ranks = 2;
  report.size = MiB(256);
  return report;
}

TEST(ProbeDocumentTest, IsAPageForPeople) {
  ProbeReport report = Report();
  report.topology.emplace();
  report.topology->packages = 1;
  const std::string page = ProbeDocument(report).Page();
  EXPECT_TRUE(Has(page, "Machine     1 package"));
  EXPECT_TRUE(Has(page, "; AVX2\n"));
  EXPECT_TRUE(Has(page, "Device      simulated device: no GPU is measured"));
  EXPECT_TRUE(Has(page,
                  "  measured                 GB/s  latency  residual  sizes\n"
                  "  host to device          12.34  1.50 us    3.10 %  1 MiB "
                  "to 64 MiB\n"
                  "  host memory, 2 threads  20.00             2.00 %\n"))
      << page;
  EXPECT_TRUE(Has(page, "Not there   NVMe: no --nvme DIR was given\n"));
  EXPECT_TRUE(Has(page, "Next        castor probe -o machine.json"));
  report.output = "my machine.json";
  report.nvme = {.folders = {"/mnt/a", "/mnt/b"},
                 .queue = "io_uring",
                 .direct = true,
                 .verified_bytes = GiB(3)};
  const std::string written = ProbeDocument(report).Page();
  EXPECT_TRUE(Has(written, "Written     my machine.json"));
  EXPECT_TRUE(Has(written, "--machine 'my machine.json'\n"));
  EXPECT_TRUE(Has(written,
                  "NVMe        /mnt/a and /mnt/b: io_uring, O_DIRECT; 3 GiB "
                  "read and found as written\n"));
  report.nvme->direct = false;
  EXPECT_TRUE(Has(ProbeDocument(report).Page(), "page cache"));
}

TEST(ProbeDocumentTest, IsADocumentForPrograms) {
  const JsonValue json = ProbeDocument(Report()).Json();
  EXPECT_EQ(json["schema"], "castor.probe/1");
  EXPECT_EQ(json["machine"]["schema"], "castor.machine/1");
  EXPECT_EQ(json["machine"]["links"]["host_to_device"]["latency_ns"], 1'500);
  EXPECT_FALSE(json["machine"]["links"].contains("nvme_read"));
  EXPECT_EQ(json["device"]["simulated"], true);
  EXPECT_EQ(json["links"].size(), 1u);
  EXPECT_EQ(json["links"][0]["bytes_per_second"], 12'340'000'000);
  EXPECT_EQ(json["links"][0]["points"][1]["size_bytes"], 64 << 20);
  EXPECT_EQ(json["links"][0]["points"][1]["samples"], 7);
  EXPECT_EQ(json["rates"][0]["bytes_per_second"], 20'000'000'000);
  EXPECT_EQ(json["rates"][0]["spread"], 0.02);
  EXPECT_TRUE(json["nvme"].is_null());
  EXPECT_EQ(json["not_measured"][0]["what"], "NVMe");
  EXPECT_EQ(json["stopped"], false);
  EXPECT_TRUE(json["output"].is_null());
}

}  // namespace
}  // namespace castor
