// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstdint>
#include <vector>

#include "chunk/search/mode_search.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

// Ordinary chunks only, unless told.
SizePiece Piece(int64_t from, int64_t chunks, int64_t oversize_chunks = 0,
                int64_t oversize_allocated = 0) {
  SizePiece piece;
  piece.from = Elements(from);
  piece.chunks = chunks;
  piece.oversize_chunks = oversize_chunks;
  piece.oversize_allocated = Elements(oversize_allocated);
  return piece;
}

TEST(CertificateBuilderTest, OnePieceIsOneInterval) {
  const std::vector<SizePiece> pieces = {Piece(256, 3)};
  const SearchCertificate certificate =
      BuildCertificate(pieces, Elements(1024), Elements(700), Elements(128));
  EXPECT_EQ(certificate.min_size, Elements(256));
  EXPECT_EQ(certificate.max_size, Elements(1024));
  EXPECT_EQ(certificate.lower_bound_waste, Elements(68));
  EXPECT_TRUE(certificate.optimal);
  ASSERT_EQ(certificate.intervals.size(), 1u);
  EXPECT_EQ(certificate.intervals[0].from, Elements(256));
  EXPECT_EQ(certificate.intervals[0].to, Elements(1024));
  EXPECT_EQ(certificate.intervals[0].chunks, 3);
}

TEST(CertificateBuilderTest, MergesPiecesWhileTheBoundStillReachesTheBest) {
  // Allocated: 1280, 1280, 1152 (best), 1280. From 256 on, three chunks would
  // bound 768 only, so the second piece cannot take in the third; the third's
  // 384 * 2 = 768 cannot take in the fourth.
  const std::vector<SizePiece> pieces = {Piece(128, 10), Piece(256, 5),
                                         Piece(384, 3), Piece(640, 2)};
  const SearchCertificate certificate =
      BuildCertificate(pieces, Elements(1280), Elements(1000), Elements(128));
  EXPECT_EQ(certificate.lower_bound_waste, Elements(152));
  ASSERT_EQ(certificate.intervals.size(), 4u);

  // With a best of 896 at the end, 256 * 5 to 384 * 4 stay above it together.
  const std::vector<SizePiece> merged = {Piece(128, 10), Piece(256, 5),
                                         Piece(384, 4), Piece(896, 1)};
  const SearchCertificate smaller =
      BuildCertificate(merged, Elements(1280), Elements(800), Elements(128));
  ASSERT_EQ(smaller.intervals.size(), 3u);
  EXPECT_EQ(smaller.intervals[1].from, Elements(256));
  EXPECT_EQ(smaller.intervals[1].to, Elements(768));
  EXPECT_EQ(smaller.intervals[1].chunks, 4);
}

TEST(CertificateBuilderTest, AnIntervalHasOneOversizeSet) {
  const std::vector<SizePiece> pieces = {
      Piece(128, 100, 2, 1000), Piece(256, 100, 1, 600), Piece(384, 1, 0, 0)};
  const SearchCertificate certificate =
      BuildCertificate(pieces, Elements(512), Elements(300), Elements(128));
  ASSERT_EQ(certificate.intervals.size(), 3u);
  EXPECT_EQ(certificate.intervals[0].to, Elements(128));
  EXPECT_EQ(certificate.intervals[0].oversize, Elements(1000));
  EXPECT_EQ(certificate.intervals[1].oversize, Elements(600));
}

}  // namespace
}  // namespace castor
