// Elements that lie in runs, copied in portions of any size, are those that indexing gives.

#include "comm/byte_runs.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

namespace sherd::detail {
namespace {

using Rows = ByteRuns::Rows;

// Some rows of a dim, in any order.
Rows some_rows(int64_t size, std::mt19937& random) {
  const auto number = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)); };
  if (number(2) == 0) return {{0, size}};
  Rows rows;
  for (int64_t at = number(2); at < size; at += number(2)) {
    const int64_t count = std::min(size - at, number(4));
    rows.push_back({at, count});
    at += count;
  }
  return rows;
}

at::Tensor picked(at::Tensor tensor, const std::vector<Rows>& rows) {
  for (size_t d = 0; d < rows.size(); ++d) {
    std::vector<int64_t> index;
    for (const Run& run : rows[d]) {
      for (int64_t i = 0; i < run.size; ++i) index.push_back(run.offset + i);
    }
    tensor = tensor.index_select(static_cast<int64_t>(d), torch::tensor(index, torch::kLong));
  }
  return tensor.contiguous();
}

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

struct Case {
  at::Tensor tensor;
  std::vector<Rows> rows;
};

Case random_case(unsigned seed) {
  std::mt19937 random(seed);
  const at::ScalarType dtypes[] = {torch::kByte, torch::kHalf, torch::kFloat, torch::kDouble, torch::kComplexDouble};
  const std::vector<Dims> shapes = {Dims(), {7}, {5, 6}, {1, 9}, {4, 1, 6}, {3, 4, 5}, {2, 3, 2, 5}, {6, 400}};
  const Dims& shape = shapes[random() % shapes.size()];
  at::Tensor tensor = torch::arange(c10::multiply_integers(shape)).view(shape).to(dtypes[random() % 5]);
  if (tensor.dim() > 1 && random() % 3 == 0) tensor = tensor.transpose(0, 1);
  std::vector<Rows> rows;
  for (const int64_t size : tensor.sizes()) rows.push_back(some_rows(size, random));
  return {tensor, rows};
}

TEST(ByteRunsTest, GetAndPutGoByPortionsOfAnySize) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    const auto [tensor, rows] = random_case(seed);
    const at::Tensor wanted = picked(tensor, rows);
    ByteRuns runs;
    runs.add_to_read(tensor, rows);
    ASSERT_EQ(runs.size(), wanted.nbytes()) << seed;
    for (const size_t portion : {1, 8, 48, 100000}) {
      at::Tensor got = torch::zeros_like(wanted);
      RunCursor cursor(runs);
      for (size_t at = 0; cursor.left() > 0; at += portion) {
        cursor.get(bytes_of(got) + at, std::min(portion, cursor.left()), CopyTo::cache);
      }
      ASSERT_TRUE(got.equal(wanted)) << seed << ", portions of " << portion;

      at::Tensor target = torch::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).zero_();
      ByteRuns places;
      places.add_to_write(target, rows);
      RunCursor writer(places);
      for (size_t at = 0; writer.left() > 0; at += portion) {
        writer.put(bytes_of(wanted) + at, std::min(portion, writer.left()), CopyTo::memory);
      }
      ASSERT_TRUE(picked(target, rows).equal(wanted)) << seed << ", portions of " << portion;
      ASSERT_TRUE(target.sum().equal(wanted.sum().to(target.sum().scalar_type()))) << seed << ": written elsewhere";
    }
  }
}

TEST(ByteRunsTest, CopiesBetweenDifferentRuns) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const auto [tensor, rows] = random_case(seed);
    const at::Tensor wanted = picked(tensor, rows);
    ByteRuns source;
    source.add_to_read(tensor, rows);
    for (const int64_t run : {int64_t{1}, int64_t{3}, int64_t{1000}}) {
      // The same number of elements in rows of `run`, each followed by one that must stay as it is.
      const int64_t count = (wanted.numel() + run - 1) / run;
      const at::Tensor target = torch::full({count, run + 1}, 77, wanted.options());
      ByteRuns places;
      for (int64_t i = 0; i < count; ++i) {
        places.add_to_write(target, {{{i, 1}}, {{0, std::min(run, wanted.numel() - i * run)}}});
      }
      RunCursor to(places);
      RunCursor from(source);
      copy_between(to, from, source.size(), CopyTo::cache);
      const at::Tensor got = target.narrow(1, 0, run).reshape({-1}).narrow(0, 0, wanted.numel());
      ASSERT_TRUE(got.equal(wanted.view({-1}))) << seed << ", rows of " << run;
      ASSERT_TRUE((target.select(1, run) == 77).all().item<bool>()) << seed;
      EXPECT_EQ(from.left(), 0U);
    }
  }
}

TEST(ByteRunsTest, KeepsItsTensors) {
  ByteRuns runs;
  at::Tensor tensor = torch::arange(1000.);
  runs.add_to_read(tensor, {{{10, 5}}});
  tensor.reset();
  at::Tensor got = torch::empty({5});
  RunCursor(runs).get(bytes_of(got), got.nbytes(), CopyTo::cache);
  EXPECT_TRUE(got.equal(torch::arange(10., 15.)));
}

TEST(ByteRunsTest, MemoryThatIsItsOwnTargetStays) {
  const at::Tensor tensor = torch::arange(4096.);
  const ByteRuns source = ByteRuns::to_read(tensor);
  const ByteRuns target = ByteRuns::to_write(tensor);
  RunCursor to(target);
  RunCursor from(source);
  copy_between(to, from, source.size(), CopyTo::memory);
  EXPECT_EQ(to.left(), 0U);
  EXPECT_TRUE(tensor.equal(torch::arange(4096.)));
}

}  // namespace
}  // namespace sherd::detail
