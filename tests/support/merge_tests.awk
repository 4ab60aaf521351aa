# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Tests in several files as one source (cc_test.bzl). A file's unnamed namespace gets a named namespace around it, so two files may have helpers of
# one name. Messages of the compiler name the file and its line.

FNR == 1 {
  name = FILENAME
  gsub(/[^A-Za-z0-9]/, "_", name)
  printf "#line 1 \"%s\"\n", FILENAME
}
$0 == "namespace {" {
  print "namespace of_" name " { namespace {"
  next
}
$0 == "}  // namespace" {
  print "} }"
  next
}
{ print }
