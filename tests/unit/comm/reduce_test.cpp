// The loops that reduce plain memory agree with torch's operators, bit by bit.

#include "comm/reduce.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "conformance/sample.h"
#include "sherd/collectives.h"
#include "sherd/world.h"

namespace sherd::detail {
namespace {

using testing::same_bits;

// Numbers whose sums depend on the order, among them some that are none.
at::Tensor numbers(int seed, int64_t numel, at::ScalarType dtype) {
  at::Tensor values = at::sin(at::arange(numel, at::kDouble) * (seed + 1.3)) * 90;
  if (!at::isFloatingType(dtype)) return dtype == at::kBool ? values > 0 : values.to(dtype);
  if (numel > 6) values.slice(0, seed, numel, 7).fill_(std::numeric_limits<double>::quiet_NaN());
  if (numel > 6) values[numel - 1] = 1e30;
  return values.to(dtype);
}

at::Tensor expected(const std::vector<at::Tensor>& parts, ReduceOp op) {
  const at::ScalarType dtype = parts.front().scalar_type();
  if (dtype != at::kHalf && dtype != at::kBFloat16) return testing::reduced(parts, op);
  std::vector<at::Tensor> wide;
  for (const at::Tensor& part : parts) wide.push_back(part.to(at::kFloat));
  return testing::reduced(wide, op).to(dtype);
}

// Floats have no bits to combine, whole numbers no average. (That of bool is refused before.)
bool known(at::ScalarType dtype, ReduceOp op) {
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  return at::isFloatingType(dtype) ? !bitwise : op != ReduceOp::avg;
}

TEST(ReduceTest, EqualsTorchForEveryDtypeReductionAndLength) {
  for (const auto dtype : testing::kReducibleDtypes) {
    for (const ReduceOp op : testing::kReductions) {
      const ReduceLoop loop = reduce_loop(dtype, op);
      EXPECT_EQ(loop == nullptr, at::isComplexType(dtype) || !known(dtype, op)) << testing::name_of(dtype);
      if (!testing::allowed(dtype, op) || loop == nullptr) continue;
      for (const int64_t numel : {0, 1, 7, 8, 1023, 1024, 3000}) {
        for (const int ranks : {1, 2, 5}) {
          std::vector<at::Tensor> parts;
          std::vector<const void*> data;
          for (int r = 0; r < ranks; ++r) {
            parts.push_back(numbers(r, numel, dtype));
            data.push_back(parts.back().const_data_ptr());
          }
          const at::Tensor wanted = expected(parts, op);
          const at::Tensor out = at::empty_like(wanted);
          loop(out.mutable_data_ptr(), data.data(), data.size(), static_cast<size_t>(numel));
          const at::Tensor nan = at::isnan(wanted);  // whose bits differ between processors
          EXPECT_TRUE(at::equal(nan, at::isnan(out)));
          EXPECT_TRUE(same_bits(out.masked_fill(nan, 0), wanted.masked_fill(nan, 0)))
              << testing::name_of(dtype) << " " << to_string(op) << " " << numel << " of " << ranks;
          // In place of one part.
          loop(parts.back().mutable_data_ptr(), data.data(), data.size(), static_cast<size_t>(numel));
          EXPECT_TRUE(same_bits(parts.back(), out)) << testing::name_of(dtype) << " " << to_string(op);
        }
      }
    }
  }
}

// Each 1 alone would be lost in a sum of 16 bits, and the sums behind an average are more than these hold. Small
// tensors and large ones are reduced in different ways.
TEST(ReduceTest, RanksSumUpSixteenBitFloatsInThirtyTwoBits) {
  for (const char* backend : {"threads", "shm"}) {
    spawn(3,
          [&](World& world) {
            for (const auto dtype : {at::kHalf, at::kBFloat16}) {
              const double large = dtype == at::kHalf ? 2048 : 256;
              for (const int64_t numel : {3, 300'000}) {
                const at::Tensor part = at::full({numel}, world.rank() == 0 ? large : 1, dtype);
                const at::Tensor sum = at::full({numel}, large + 2, dtype);
                const at::Tensor all = part.clone();
                all_reduce(world.group(), all).wait();
                EXPECT_TRUE(at::equal(all, sum)) << backend << " " << numel << " " << testing::name_of(dtype);
                const at::Tensor own = at::empty({numel / 3}, dtype);
                reduce_scatter(world.group(), own, part, ReduceOp::sum).wait();
                EXPECT_TRUE(at::equal(own, sum.narrow(0, 0, numel / 3))) << backend << " " << numel;
                const at::Tensor average = at::full({numel}, 60'000, dtype);
                all_reduce(world.group(), average, ReduceOp::avg).wait();
                EXPECT_TRUE(at::equal(average, at::full({numel}, 60'000, dtype))) << backend << " " << numel;
              }
            }
          },
          {.backend = backend});
  }
}

}  // namespace
}  // namespace sherd::detail
