// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/unique_function.h"

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace castor {
namespace {

using Adder = UniqueFunction<int(int)>;

// Counts those of its kind that live, and weighs `kSize` bytes and more.
template <size_t kSize>
struct Counted {
  explicit Counted(int* count) : alive(count) { ++*alive; }
  Counted(Counted&& other) noexcept : alive(other.alive), calls(other.calls) {
    ++*alive;
  }
  ~Counted() { --*alive; }
  int operator()(int x) { return x + ++calls; }

  int* alive;
  int calls = 0;
  std::array<std::byte, kSize> weight = {};
};
using Small = Counted<1>;
using Large = Counted<Adder::kInlineBytes>;

TEST(UniqueFunctionTest, IsEmptyUntilItIsGivenSomething) {
  Adder function;
  EXPECT_FALSE(function);
  function = [](int x) { return x + 1; };
  ASSERT_TRUE(function);
  EXPECT_EQ(function(2), 3);
  function = nullptr;
  EXPECT_FALSE(function);
}

TEST(UniqueFunctionTest, EmptyFunctionsAndNullPointersMakeAnEmptyOne) {
  EXPECT_FALSE(Adder(std::function<int(int)>()));
  EXPECT_FALSE(Adder(static_cast<int (*)(int)>(nullptr)));
  EXPECT_TRUE(Adder(std::function<int(int)>([](int x) { return x; })));
}

TEST(UniqueFunctionTest, HoldsWhatCannotBeCopied) {
  UniqueFunction<std::string(const std::string&)> greet =
      [name = std::make_unique<std::string>("chunk")](const std::string& word) {
        return word + " " + *name;
      };
  EXPECT_EQ(greet("hello"), "hello chunk");
}

TEST(UniqueFunctionTest, PassesArgumentsOnWithoutACopy) {
  UniqueFunction<size_t(std::unique_ptr<std::string>)> size =
      [](std::unique_ptr<std::string> text) { return text->size(); };
  EXPECT_EQ(size(std::make_unique<std::string>("four")), 4u);
}

// A callable goes with its owner, a move keeps the callable's state, and a
// replaced callable is gone, whether it lies inside the function or outside.
template <typename Held>
void ExpectOneOwner() {
  int alive = 0;
  {
    Adder first = Held(&alive);
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(first(10), 11);
    Adder second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT: moved from on purpose
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(second(10), 12);
    first = std::move(second);
    EXPECT_EQ(first(10), 13);
    first = Held(&alive);
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(first(10), 11);
  }
  EXPECT_EQ(alive, 0);
}

TEST(UniqueFunctionTest, OwnsASmallCallable) { ExpectOneOwner<Small>(); }
TEST(UniqueFunctionTest, OwnsALargeCallable) { ExpectOneOwner<Large>(); }

TEST(UniqueFunctionTest, IsEmptyWhileItsCallableGoes) {
  Adder function;
  bool was_empty = false;
  const auto asks = [&](int*) { was_empty = !function; };
  int none = 0;
  function = [held = std::unique_ptr<int, decltype(asks)>(&none, asks)](int x) {
    return x + *held;
  };
  function = nullptr;
  EXPECT_TRUE(was_empty);
}

TEST(UniqueFunctionDeathTest, AnEmptyOneIsNotCalled) {
  Adder function;
  EXPECT_DEATH(function(1), "held_");
}

}  // namespace
}  // namespace castor
