// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Every relative link in every page of the repository leads to a file, and its
// fragment to a heading. Looks at the working tree itself, not at what Bazel
// copied for the test, so that a link to any file counts.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/tools/docs/markdown.h"

namespace castor {
namespace {

namespace fs = std::filesystem;

std::string Read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Bazel hands out README.md as a link to the one in the working tree.
fs::path Repository() { return fs::canonical("README.md").parent_path(); }

std::vector<fs::path> Pages() {
  std::vector<fs::path> pages;
  for (auto entry = fs::recursive_directory_iterator(Repository());
       entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().filename();
    if (entry->is_directory() && name.starts_with(".")) {
      entry.disable_recursion_pending();
    }
    if (entry->is_regular_file() && entry->path().extension() == ".md") {
      pages.push_back(entry->path());
    }
  }
  std::sort(pages.begin(), pages.end());
  return pages;
}

// Empty, or what is wrong with it.
std::string Complaint(const fs::path& page, const std::string& target) {
  if (target.find("://") != target.npos || target.starts_with("mailto:")) {
    return "";
  }
  const size_t hash = target.find('#');
  const std::string file = target.substr(0, hash);
  const fs::path to = file.empty() ? page : page.parent_path() / file;
  if (!fs::exists(to)) return "no such file";
  if (fs::relative(to, Repository()).string().starts_with("..")) {
    return "leads out of the repository";
  }
  if (hash == target.npos) return "";
  const std::vector<std::string> ids = HeadingIds(Read(to));
  const bool found =
      std::find(ids.begin(), ids.end(), target.substr(hash + 1)) != ids.end();
  return found ? "" : "no such heading there";
}

TEST(LinksTest, EveryRelativeLinkResolves) {
  size_t links = 0;
  for (const fs::path& page : Pages()) {
    for (const Link& link : Links(Read(page))) {
      ++links;
      const std::string complaint = Complaint(page, link.target);
      EXPECT_EQ(complaint, "")
          << page.string() << ":" << link.line << ": " << link.target;
    }
  }
  // The front page alone has these; fewer means that they were not found.
  EXPECT_GE(links, 10u);
}

}  // namespace
}  // namespace castor
