# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

# Tests in several files as one source (cc_test.bzl). What is in an unnamed namespace of a file gets a named one around it, so that two files
# may have helpers of one name; a message of the compiler names file and line as they are.

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
