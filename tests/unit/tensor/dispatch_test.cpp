// What decides how a call is run, and what it may do by itself: the keys of plans, strict mode, explicit scopes,
// conversions of Partials, views without memory around them.

#include "tensor/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "sherd/sherd.h"
#include "tensor/meta.h"

namespace sherd::testing {
namespace {

using at::Tensor;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using List = std::vector<Tensor>;

Tensor numbers(at::IntArrayRef shape) {
  return torch::arange(c10::multiply_integers(shape), torch::kDouble).remainder(7).sub(3).view(shape);
}

void on_ranks(int ranks, const std::function<void(const DeviceMesh&)>& body) {
  spawn(ranks, [&](World&) { body(init_device_mesh("cpu", {ranks}, {"a"})); });
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

// An argument that is left out is no number: what was planned for one must not serve the other.
TEST(PlanKeyTest, LeftOutAndFourAreTwoCalls) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({6, 5});
    for (const Placement& placement : Placements{Shard(0), Shard(1), Replicate()}) {
      const Tensor d = distribute_tensor(x, mesh, {placement});
      EXPECT_TRUE(full_tensor(d.slice(0, 1)).equal(x.slice(0, 1)));
      EXPECT_TRUE(full_tensor(d.slice(0, 1, 4)).equal(x.slice(0, 1, 4)));
      EXPECT_TRUE(full_tensor(d.slice(1, 4)).equal(x.slice(1, 4)));
      EXPECT_TRUE(full_tensor(d.slice(1, std::nullopt, 4)).equal(x.slice(1, std::nullopt, 4)));
    }
    const Tensor y = numbers({2, 1, 3, 1, 4});
    const Tensor e = distribute_tensor(y, mesh, {Replicate()});
    EXPECT_TRUE(full_tensor(e.argmax()).equal(y.argmax()));
    EXPECT_TRUE(full_tensor(e.argmax(4)).equal(y.argmax(4)));
    // kLong is the fourth dtype.
    const Tensor halves = from_local(torch::full({3}, 0.5), mesh, {Partial()});
    EXPECT_TRUE(full_tensor(at::_to_copy(halves)).equal(torch::ones({3})));
    EXPECT_TRUE(full_tensor(halves.to(torch::kLong)).equal(torch::ones({3}, torch::kLong)));
  });
}

// Results take the order of dims in memory from plain operands, too.
TEST(PlanKeyTest, APlainTensorThatLiesInAnotherWayIsAnotherCall) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor two = distribute_tensor(torch::full({}, 2., torch::kDouble), mesh, {Replicate()});
    const Tensor plain = numbers({3, 3});
    for (const Tensor& x : {plain, plain.t(), plain}) {
      const Tensor got = two * x;
      EXPECT_EQ(got.strides(), (torch::full({}, 2., torch::kDouble) * x).strides());
      EXPECT_TRUE(full_tensor(got).equal(2 * x));
    }
  });
}

// Ranks drop their plans when they have too many, each at a time of its own. A way that was taken for the data's sake
// is no plan to keep: the one that has it and the one that has dropped it would call different things.
TEST(PlanCacheTest, ARankThatDroppedItsPlansGoesWithTheOthers) {
  spawn(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const Tensor ordered = torch::arange(256, torch::kDouble);
    Tensor broken = ordered.clone();
    broken[3] = std::nan("");
    const auto sorted = [&](const Tensor& x) {
      const Tensor rows = distribute_tensor(x, mesh, {Shard(0)}, {.source = std::nullopt});
      return full_tensor(std::get<0>(rows.sort()));
    };
    EXPECT_TRUE(sorted(broken)[255].isnan().item<bool>());
    if (world.rank() == 1) detail::forget_plans();
    EXPECT_TRUE(sorted(ordered.flip(0)).equal(ordered));
    const auto taken = [&](int64_t row) {
      const Tensor rows = distribute_tensor(ordered, mesh, {Shard(0)}, {.source = std::nullopt});
      return full_tensor(rows.index_select(0, torch::tensor({row}))).item<double>();
    };
    EXPECT_THROW(taken(-1), c10::Error);
    if (world.rank() == 1) detail::forget_plans();
    EXPECT_EQ(taken(200), 200);
  });
}

// Numbers are no part of a plan's key.
TEST(PlanCacheTest, ARangeThatTorchRefusesMakesNoPlanForOthers) {
  spawn(2,
        [](World& world) {
          const DeviceMesh mesh = init_device_mesh("cpu", {2});
          const Tensor x = torch::arange(8, torch::kDouble);
          const auto counted = [&](double low, double high) {
            const Tensor rows = distribute_tensor(x, mesh, {Shard(0)}, {.source = std::nullopt});
            return full_tensor(rows.histc(4, low, high));
          };
          EXPECT_THROW(counted(3, 1), c10::Error);
          EXPECT_THROW(counted(0, INFINITY), c10::Error);
          if (world.rank() == 1) detail::forget_plans();
          EXPECT_TRUE(counted(0, 8).equal(x.histc(4, 0, 8)));
        },
        {.timeout = std::chrono::seconds(20)});
}

TEST(StrictTest, HoldsForCallsThatWereMadeBefore) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    const auto call = [&] { return at::_unique(x.reshape({-1})); };
    call();
    barrier(mesh.group(0));
    set_strict(true);
    const std::string strict = error_of(call);
    barrier(mesh.group(0));
    set_strict(false);
    EXPECT_THAT(strict, HasSubstr("no rule says how this operator is sharded"));
    EXPECT_EQ(error_of(call), "");
  });
}

TEST(ExplicitTest, AWarningIsSaidWithoutAskingForTheLog) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor a = distribute_tensor(numbers({4, 4}), mesh, {Shard(0)});
    const ExplicitRedistribution warn(ExplicitRedistribution::Mode::warn);
    barrier(mesh.group(0));
    const bool first = mesh.world().rank() == 0;
    if (first) ::testing::internal::CaptureStderr();
    barrier(mesh.group(0));
    a.mm(a);
    a.mm(a);
    barrier(mesh.group(0));
    if (!first) return;
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("sherd: mm: would move data by itself"));
    EXPECT_EQ(said.find("would move"), said.rfind("would move")) << "said once";
  });
}

TEST(ExplicitTest, ListsExtremesAndSlicesOfAMeshAreHeldToIt) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    const Tensor rows = distribute_tensor(numbers({4, 4}), mesh, {Shard(0), Replicate()});
    const Tensor columns = distribute_tensor(numbers({4, 4}), mesh, {Shard(1), Replicate()});
    const Tensor part = distribute_tensor(numbers({4, 4}), mesh["a"], {Shard(0)});
    const Tensor other = distribute_tensor(numbers({4, 4}), mesh["b"], {Shard(0)});
    const ExplicitRedistribution nothing_moves;
    EXPECT_THAT(error_of([&] { at::_foreach_add(List{rows}, List{columns}); }), HasSubstr("would move data by itself"));
    EXPECT_EQ(error_of([&] { at::_foreach_add(List{rows}, List{rows}); }), "");
    const Tensor whole = distribute_tensor(numbers({4, 4}), mesh, {Replicate(), Replicate()});
    EXPECT_EQ(error_of([&] { at::_foreach_add(List{rows}, List{whole}); }), "");  // each takes its rows
    EXPECT_THAT(error_of([&] { rows.argmax(); }), HasSubstr("would move data by itself"));
    EXPECT_EQ(error_of([&] { part.add(part); }), "");
    EXPECT_THAT(error_of([&] { part.add_(other); }), HasSubstr("would move data by itself"));
  });
}

// Converting the parts of a sum is not converting the sum.
TEST(PartialTest, IsReducedBeforeItIsRoundedOrBecomesABoolean) {
  spawn(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const bool first = world.rank() == 0;
    const auto parts = [&](double here, double there, c10::ScalarType dtype = torch::kDouble) {
      return from_local(torch::full({2, 3}, first ? here : there).to(dtype), mesh, {Partial()});
    };
    const auto expect = [](const Tensor& got, const Tensor& wanted, const char* what) {
      EXPECT_EQ(got.scalar_type(), wanted.scalar_type()) << what;
      EXPECT_TRUE(full_tensor(got).equal(wanted)) << what << "\n" << full_tensor(got) << wanted;
    };
    expect(parts(1, -1, torch::kLong).to(torch::kBool), torch::zeros({2, 3}, torch::kBool), "to bool");
    expect(parts(0.5, 0.5).sum({1}, false, torch::kLong), torch::full({2}, 3, torch::kLong), "sum");
    expect(parts(0.5, 0.5).sum(torch::kLong), torch::tensor(6, torch::kLong), "sum of all");
    expect(parts(0.5, 0.5).cumsum(0, torch::kLong), torch::ones({2, 3}, torch::kLong).cumsum(0), "cumsum");
    expect(torch::nansum(parts(NAN, 5)), torch::tensor(0., torch::kDouble), "nansum");
    Tensor whole = parts(0, 0, torch::kLong);
    whole.copy_(parts(0.5, 0.5));
    expect(whole, torch::ones({2, 3}, torch::kLong), "copy_");
    Tensor sums = sherd::full({2}, 0, mesh, {Replicate()}, torch::kLong);
    torch::sum_out(sums, parts(0.5, 0.5), at::IntArrayRef{1}, false, torch::kLong);
    expect(sums, torch::full({2}, 3, torch::kLong), "sum_out");
    Tensor sums_so_far = sherd::full({2, 3}, 0, mesh, {Replicate()}, torch::kLong);
    torch::cumsum_out(sums_so_far, parts(0.5, 0.5), 0);
    expect(sums_so_far, torch::ones({2, 3}, torch::kLong).cumsum(0), "cumsum_out");
  });
}

// What is beyond the largest number of a type begins anew, for the sum and not for its parts in a larger type.
TEST(PartialTest, SmallIntegersAreReducedBeforeTheyBecomeLarger) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const auto expect = [](const Tensor& got, const Tensor& wanted, const char* what) {
      EXPECT_EQ(got.scalar_type(), wanted.scalar_type()) << what;
      EXPECT_TRUE(full_tensor(got).equal(wanted)) << what << "\n" << full_tensor(got) << wanted;
    };
    const auto one = [](double value, c10::ScalarType dtype) { return torch::full({1, 1}, value, dtype); };
    const Tensor p = distribute_tensor(torch::full({1, 4}, 100, torch::kByte), mesh, {Shard(1)})
                         .mm(distribute_tensor(torch::ones({4, 1}, torch::kByte), mesh, {Shard(0)}));
    ASSERT_EQ(placements_of(p), Placements{Partial()});  // of 200 and 200
    expect(p, one(144, torch::kByte), "mm");
    expect(p.to(torch::kLong), one(144, torch::kLong), "to a larger type");
    expect(p.to(torch::kFloat), one(144, torch::kFloat), "to float");
    expect(p.sum(), torch::tensor(144, torch::kLong), "sum");
    expect(p.mean(torch::kFloat), torch::tensor(144.F), "mean");
    Tensor wide = sherd::zeros({1, 1}, mesh, {Replicate()}, torch::kLong);
    expect(wide.copy_(p), one(144, torch::kLong), "copy_");
    expect(wide.add_(p), one(288, torch::kLong), "add_");
    expect(at::cat({p, wide}), torch::tensor({144, 288}, torch::kLong).view({2, 1}), "cat");
    expect(p * 2, one(32, torch::kByte), "times a whole number");
    expect(p * 2.5, one(360, torch::kFloat), "times another one");
    const Tensor parts = from_local(one(20000, torch::kShort), mesh, {Partial()});
    expect(parts + one(1, torch::kLong), one(-25535, torch::kLong), "beside a larger type");
    expect(parts / 2, one(-12768, torch::kFloat), "divided");
    // In a type that is no larger, parts add up as the sums do.
    EXPECT_EQ(placements_of(parts.to(torch::kByte)), Placements{Partial()});
    expect(parts.to(torch::kByte), one(64, torch::kByte), "to a smaller type");
    EXPECT_EQ(placements_of(parts + parts), Placements{Partial()});
    expect(parts + parts, one(14464, torch::kShort), "of one type");
  });
}

// Copied views are fetched anew by all ranks or by none: those without elements count writes as the others do.
// Also where a part, of one row or none, does not tell how the whole lies in memory.
TEST(ViewTest, InPlaceTheStridesAreThoseOfOneDevice) {
  on_ranks(3, [](const DeviceMesh& mesh) {
    for (const Placement& placement : Placements{Shard(0), Shard(1), Replicate()}) {
      Tensor x = numbers({2, 3});
      Tensor d = distribute_tensor(x, mesh, {placement}, {.source = std::nullopt});
      EXPECT_EQ(d.t_().strides(), x.t_().strides()) << to_string(placement);
      EXPECT_EQ(d.unsqueeze_(1).strides(), x.unsqueeze_(1).strides()) << to_string(placement);
      EXPECT_EQ(d.squeeze_(1).strides(), x.squeeze_(1).strides()) << to_string(placement);
      EXPECT_TRUE(full_tensor(d).equal(x));
    }
  });
}

TEST(ViewTest, AResultWithoutElementsIsNotPartOfItsSource) {
  const auto on_mesh = [](const std::vector<int64_t>& shape, const std::function<void(const DeviceMesh&)>& body) {
    spawn(4, [&](World&) { body(init_device_mesh("cpu", shape)); }, {.timeout = std::chrono::seconds(20)});
  };
  on_mesh({4}, [](const DeviceMesh& mesh) {
    const Tensor x = distribute_tensor(numbers({3, 2}), mesh, {Shard(0)});
    const Tensor row = x.select(0, 1);
    Tensor dropped = torch::dropout(x, 0.5, true);
    dropped.mul_(2);
    EXPECT_TRUE(full_tensor(row).equal(numbers({3, 2})[1]));
    x.mul_(2);
    EXPECT_TRUE(full_tensor(row).equal(numbers({3, 2})[1] * 2));
  });
  on_mesh({2, 2}, [](const DeviceMesh& mesh) {
    const Tensor z = distribute_tensor(numbers({3, 2}), mesh, {Shard(0), Replicate()});
    const Tensor last = z.select(0, 2);
    redistribute(z, {Shard(0), Shard(0)}).add_(1);
    EXPECT_TRUE(full_tensor(last).equal(numbers({3, 2})[2]));
    redistribute(List{z}, {{Shard(0), Shard(0)}})[0].add_(1);
    EXPECT_TRUE(full_tensor(last).equal(numbers({3, 2})[2]));
  });
}

// Each of the two copied views has the rest of the tensor as it was before the call.
TEST(ViewTest, WritesThroughConjugatesAndNegativesReachTheTensor) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    for (const Placement& placement : {Placement(Shard(0)), Placement(Replicate())}) {
      Tensor plain = torch::complex(numbers({5}), numbers({5}) + 1);
      const Tensor x = distribute_tensor(plain.clone(), mesh, {placement});
      const Tensor conjugate = x.conj();
      conjugate.mul_(c10::complex<double>(0, 2));
      plain.conj().mul_(c10::complex<double>(0, 2));
      EXPECT_TRUE(full_tensor(x).equal(plain));
      x.add_(1);
      plain.add_(1);
      EXPECT_TRUE(full_tensor(conjugate).equal(plain.conj().resolve_conj()));
      conjugate.slice(0, 1, 3).fill_(c10::complex<double>(3, 4));
      plain.conj().slice(0, 1, 3).fill_(c10::complex<double>(3, 4));
      EXPECT_TRUE(full_tensor(x).equal(plain));
      at::_neg_view(x).sub_(2);
      at::_neg_view(plain).sub_(2);
      EXPECT_TRUE(full_tensor(x).equal(plain));
    }
  });
}

TEST(ViewTest, ANegativeOfAPartialKnowsThatItWasReduced) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = from_local(numbers({3}) + mesh.world().rank(), mesh, {Partial(ReduceOp::product)});
    const Tensor negative = at::_neg_view(x);
    EXPECT_TRUE(full_tensor(negative).equal(-numbers({3}) * (numbers({3}) + 1)));
    x.copy_(numbers({3}) * 2);
    EXPECT_TRUE(full_tensor(negative).equal(-numbers({3}) * 2));
    negative.fill_(-7);
    EXPECT_TRUE(full_tensor(x).equal(torch::full({3}, 7., torch::kDouble)));
  });
}

TEST(AsStridedTest, AConjugateOfRowsHasNoMemoryAroundIt) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor plain = torch::complex(numbers({4, 3}), numbers({4, 3}) + 1);
    const Tensor x = distribute_tensor(plain, mesh, {Replicate()});
    const Tensor right = plain.view(-1).slice(0, 3, 5).conj().resolve_conj();
    EXPECT_TRUE(full_tensor(x.conj().as_strided({2}, {1}, 3)).equal(right));
    const Tensor rows = x.slice(0, 1).conj();
    EXPECT_TRUE(full_tensor(rows.as_strided({2}, {1})).equal(right));
    EXPECT_THAT(error_of([&] { rows.as_strided({2}, {1}, 0); }), HasSubstr("no memory around it"));
  });
}

TEST(ViewTest, AWriteToAConjugateIsSeenByWhatWasMadeOfThePart) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = distribute_tensor(torch::complex(numbers({4}), numbers({4}) + 1), mesh, {Shard(0)});
    const Tensor w = numbers({2}).to(torch::kComplexDouble).requires_grad_();
    const Tensor loss = at::abs(to_local(x) * w).sum();
    x.conj().mul_(2);
    EXPECT_THROW(loss.backward(), c10::Error);
  });
}

TEST(ReductionTest, AnyAndAllAlongNoDimReduceNothing) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = torch::tensor({0, 1, 2, 0, 0, 3, 4, 0, 5, 0, 6, 0, 0, 0, 7}, torch::kFloat).view({5, 3});
    const Tensor d = distribute_tensor(x, mesh, {Shard(0)});
    const at::OptionalIntArrayRef none{at::IntArrayRef{}};
    for (const bool keep : {false, true}) {
      EXPECT_TRUE(full_tensor(at::any(d, none, keep)).equal(at::any(x, none, keep)));
      EXPECT_TRUE(full_tensor(at::all(d, none, keep)).equal(at::all(x, none, keep)));
      Tensor out = distribute_tensor(torch::zeros({5, 3}, torch::kBool), mesh, {Shard(0)});
      at::any_out(out, d, none, keep);
      EXPECT_TRUE(full_tensor(out).equal(x != 0));
    }
  });
}

TEST(SplitTest, NoRowsAreOnePart) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const auto parts = distribute_tensor(torch::zeros({0, 3}), mesh, {Shard(0)}).split(2);
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].sizes(), at::IntArrayRef({0, 3}));
  });
}

TEST(PartialTest, CopiesReduceBeforeTheyRound) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = from_local(torch::full({2}, 0.6, torch::kDouble), mesh, {Partial()});
    const Tensor zeros = torch::zeros({2}, torch::kLong);
    EXPECT_TRUE(full_tensor(at::copy(distribute_tensor(zeros, mesh, {Replicate()}), x)).equal(torch::ones_like(zeros)));
    Tensor out = distribute_tensor(zeros, mesh, {Replicate()});
    at::_to_copy_out(out, x);
    EXPECT_TRUE(full_tensor(out).equal(torch::ones_like(zeros)));
  });
}

TEST(ViewTest, OneCallWritesTwoViewsOfATensor) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    for (const Placements& placements : {Placements{Shard(0)}, Placements{StridedShard(0, 2)}, Placements{Shard(1)}}) {
      const Tensor x = numbers({4, 5});
      const Tensor d = distribute_tensor(x, mesh, placements, {.source = std::nullopt});
      at::_foreach_mul_(List{d.select(0, 0), d.slice(0, 2, 4)}, 3);
      at::_foreach_mul_(List{x.select(0, 0), x.slice(0, 2, 4)}, 3);
      EXPECT_TRUE(full_tensor(d).equal(x)) << to_string(placements) << full_tensor(d) << x;
      const auto of_two = [](const Tensor& z) {
        Tensor lowest = z.select(1, 0);
        Tensor highest = z.select(1, 4);
        torch::aminmax_out(lowest, highest, z.slice(1, 1, 4).clone(), 1);
      };
      of_two(d);
      of_two(x);
      EXPECT_TRUE(full_tensor(d).equal(x)) << to_string(placements) << full_tensor(d) << x;
    }
  });
}

// As on one device, where each sees what was written before it.
TEST(ViewTest, OneCallWritesATensorAndViewsOfIt) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const auto same = [&](const std::function<void(const Tensor&)>& write) {
      const Tensor x = numbers({4, 5});
      const Tensor d = distribute_tensor(x, mesh, {Shard(0)}, {.source = std::nullopt});
      write(x);
      write(d);
      EXPECT_TRUE(full_tensor(d).equal(x)) << full_tensor(d) << x;
    };
    same([](const Tensor& z) { at::_foreach_add_(List{z, z.select(0, 3)}, 1); });
    same([](const Tensor& z) { at::_foreach_add_(List{z.select(0, 3), z}, 1); });
    same([](const Tensor& z) { at::_foreach_add_(List{z.select(0, 0), z.select(0, 3), z}, 1); });
    same([](const Tensor& z) { at::_foreach_mul_(List{z.select(0, 3), z.select(0, 3)}, 3); });
    const std::vector<at::Scalar> scalars = {2, 3};
    same([&](const Tensor& z) { at::_foreach_mul_(List{z.select(0, 0), z}, scalars); });
    same([&](const Tensor& z) {
      at::_foreach_addcmul_(List{z.select(0, 0), z.select(0, 3)}, List{z.select(0, 1), z.select(0, 2)},
                            List{z.select(0, 3), z.select(0, 0)}, torch::tensor({2., 3.}, torch::kDouble));
    });
  });
}

TEST(ForeachTest, OperandsThatAreBroadcastOrPlain) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({2, 4});
    const Tensor row = numbers({4});
    for (const Placement& placement : Placements{Shard(0), Shard(1), Replicate()}) {
      const Tensor d = distribute_tensor(x, mesh, {placement}, {.source = std::nullopt});
      const auto expect = [&](const List& got, const Tensor& right) {
        ASSERT_EQ(got[0].sizes(), right.sizes());
        EXPECT_TRUE(full_tensor(got[0]).equal(right)) << to_string(placement);
      };
      expect(at::_foreach_add(List{d}, List{row}), x + row);
      expect(at::_foreach_add(List{row}, List{d}), row + x);
      expect(at::_foreach_mul(List{distribute_tensor(row, mesh, {Shard(0)})}, List{d}), row * x);
      expect(at::_foreach_mul(List{x}, List{d}), x * x);
      // In place, the first has its placements, or is plain, as before.
      Tensor written = d.clone();
      at::_foreach_add_(List{written}, List{row});
      EXPECT_EQ(placements_of(written), placements_of(d));
      EXPECT_TRUE(full_tensor(written).equal(x + row));
      Tensor plain = x.clone();
      at::_foreach_add_(List{plain}, List{d});
      EXPECT_FALSE(is_dtensor(plain));
      EXPECT_TRUE(plain.equal(x + x));
    }
  });
}

// What is moved is a copy: a tensor that stands twice in a list is written twice all the same.
TEST(ForeachTest, ATensorThatIsNamedTwiceIsWrittenTwice) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor sum = from_local(torch::ones({3}), mesh, {Partial()});
    at::_foreach_add_(List{sum, sum}, 1.);
    EXPECT_TRUE(full_tensor(sum).equal(torch::full({3}, 4.)));
    const Tensor rows = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    at::_foreach_add_(List{rows, rows.slice(0, 1, 3)}, List{numbers({3}), numbers({3})});
    Tensor right = numbers({4, 3});
    at::_foreach_add_(List{right, right.slice(0, 1, 3)}, List{numbers({3}), numbers({3})});
    EXPECT_TRUE(full_tensor(rows).equal(right));
    const Tensor plain = numbers({4, 3});
    at::_foreach_add_(List{plain, plain}, List{rows, rows});
    EXPECT_TRUE(plain.equal(numbers({4, 3}) + 2 * right));
  });
}

TEST(ForeachTest, ResultsLieInMemoryAsOnOneDevice) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const auto expect = [&](const Tensor& x, const Tensor& y, int64_t dim, const std::function<Tensor(Tensor)>& view) {
      const Tensor d = view(distribute_tensor(x, mesh, {Shard(dim)}, {.source = std::nullopt}));
      const Tensor got =
          at::_foreach_mul(List{d}, List{distribute_tensor(y, mesh, {Shard(dim)}, {.source = std::nullopt})})[0];
      const Tensor right = at::_foreach_mul(List{view(x)}, List{y})[0];
      EXPECT_EQ(got.strides(), right.strides());
      EXPECT_TRUE(full_tensor(got).equal(right));
      EXPECT_EQ(at::_foreach_neg(List{d})[0].strides(), at::_foreach_neg(List{view(x)})[0].strides());
    };
    expect(numbers({1, 4}), numbers({3, 4}), 1, [](const Tensor& t) { return t.expand({3, 4}); });
    expect(numbers({4, 6}), numbers({4, 3}), 0, [](const Tensor& t) { return t.slice(1, 0, 3); });
    expect(numbers({4, 3}), numbers({3, 4}).t(), 0, [](const Tensor& t) { return t; });
    expect(numbers({3, 4}).t(), numbers({3, 4}).t(), 0, [](const Tensor& t) { return t; });
    const Tensor columns = numbers({3, 4}).t();
    const Tensor whole =
        from_local(columns.contiguous(), mesh, {Replicate()}, {.shape = Dims{4, 3}, .stride = Dims{1, 4}});
    const Tensor two = torch::full({}, 2., torch::kDouble);
    EXPECT_EQ(at::_foreach_div(List{whole}, List{distribute_tensor(two, mesh, {Replicate()})})[0].strides(),
              at::_foreach_div(List{columns}, List{two})[0].strides());
  });
}

// A plain tensor beside parameters that are cut is whole on every rank, before the call and after it.
TEST(ForeachTest, APlainStateTakesWhatAllRanksWrite) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    struct State {
      Tensor average = torch::zeros({3, 2}, torch::kDouble);
      Tensor square = torch::zeros({3, 2}, torch::kDouble);
    };
    const auto step = [](const Tensor& parameter, const Tensor& gradient, const State& state) {
      at::_fused_adam_(List{parameter}, List{gradient}, List{state.average}, List{state.square}, List{},
                       List{torch::ones({})}, /*lr=*/0.1, /*beta1=*/0.9, /*beta2=*/0.99, /*weight_decay=*/0.,
                       /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false);
    };
    const Tensor x = numbers({3, 2});
    const Tensor gradient = numbers({3, 2}) + 10;
    const Tensor d = distribute_tensor(x, mesh, {Shard(0)});
    const Tensor g = distribute_tensor(gradient, mesh, {Shard(0)});
    State alone, state;
    for (int i = 0; i < 2; ++i) {
      step(x, gradient, alone);
      step(d, g, state);
      EXPECT_TRUE(torch::allclose(full_tensor(d), x));
      EXPECT_TRUE(torch::allclose(state.average, alone.average)) << state.average << alone.average;
      EXPECT_TRUE(torch::allclose(state.square, alone.square)) << state.square << alone.square;
    }
    const ExplicitRedistribution nothing_moves;
    EXPECT_THAT(error_of([&] { step(d, g, state); }), HasSubstr("_fused_adam_: would move data by itself"));
  });
}

TEST(OutTest, ListsTakeWhatTheOperatorReturns) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({2, 4});
    for (const Placement& placement : Placements{Shard(0), Shard(1), Replicate()}) {
      const Tensor d = distribute_tensor(x, mesh, {placement}, {.source = std::nullopt});
      const auto made = [&] { return sherd::zeros({4}, mesh, {Shard(0)}, torch::kDouble); };
      // Plain ones, distributed ones, and ones of another size.
      List outs = {torch::empty({4}, torch::kDouble), made()};
      at::unbind_copy_out(outs, d, 0);
      EXPECT_FALSE(is_dtensor(outs[0]));
      EXPECT_TRUE(outs[0].equal(x.select(0, 0)));
      EXPECT_EQ(placements_of(outs[1]), Placements{Shard(0)});
      EXPECT_TRUE(full_tensor(outs[1]).equal(x.select(0, 1)));
      List others = {torch::empty({0}, torch::kDouble), sherd::zeros({7}, mesh, {Shard(0)}, torch::kDouble)};
      at::split_copy_out(others, d, 2, 1);
      EXPECT_TRUE(others[0].equal(x.slice(1, 0, 2)));
      EXPECT_TRUE(full_tensor(others[1]).equal(x.slice(1, 2, 4)));
      List norms = {torch::empty({}, torch::kDouble)};
      at::_foreach_norm_out(norms, List{d}, 2);
      EXPECT_DOUBLE_EQ(norms[0].item<double>(), x.norm().item<double>());
      EXPECT_THAT(error_of([&] { at::unbind_copy_out(norms, d, 0); }),
                  HasSubstr("unbind_copy: out= has another number of tensors than there are results\n"
                            "  out: 1\n"
                            "  results: 2\n"));
    }
  });
}

TEST(AsStridedTest, AViewThatWasMovedHasNoMemoryAroundIt) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({8, 6});
    const Tensor d = distribute_tensor(x, mesh, {Shard(0)});
    const std::string refusal = "as_strided: this view of a distributed tensor has no memory around it";
    EXPECT_THAT(error_of([&] { d.slice(0, 2, 4).as_strided({6}, {1}, 0); }), HasSubstr(refusal));
    EXPECT_THAT(error_of([&] { d.select(0, 2).as_strided({6}, {1}, 0); }), HasSubstr(refusal));
    // Without an offset it starts at the view.
    EXPECT_TRUE(full_tensor(d.slice(0, 2, 4).as_strided({6}, {1})).equal(x.slice(0, 2, 4).as_strided({6}, {1})));
    // And may ask for what is its own: not for what lies between its elements, or behind them.
    const Tensor column = d.slice(1, 0, 1);
    EXPECT_TRUE(full_tensor(column.as_strided({3}, {12})).equal(x.as_strided({3}, {12})));
    EXPECT_THAT(error_of([&] { column.as_strided({3}, {5}); }), HasSubstr(refusal));
    EXPECT_THAT(error_of([&] { d.slice(0, 0, 3).as_strided({19}, {1}); }), HasSubstr(refusal));
    EXPECT_THAT(error_of([&] { column.as_strided({}, {}).as_strided({2}, {6}); }), HasSubstr(refusal));
    EXPECT_TRUE(full_tensor(d.as_strided({6}, {1}, 12)).equal(x.as_strided({6}, {1}, 12)));
    const Tensor whole = distribute_tensor(x, mesh, {Replicate()});
    EXPECT_TRUE(full_tensor(whole.slice(0, 2, 4).as_strided({6}, {1}, 0)).equal(x.as_strided({6}, {1}, 0)));
  });
}

// The offset of a view of a whole tensor is that of one device, and so is what an offset counts from.
TEST(AsStridedTest, AnOffsetCountsFromWhereTheWholeTensorBegins) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({4, 3});
    const auto make = {distribute_tensor(x, mesh, {Replicate()}),
                       // Its parts begin somewhere in the memory of another tensor.
                       from_local(torch::cat({x[0].unsqueeze(0) - 9, x}).slice(0, 1), mesh, {Replicate()})};
    for (const Tensor& d : make) {
      const auto expect = [&](const Tensor& view, const Tensor& right) {
        EXPECT_EQ(view.storage_offset(), right.storage_offset());
        const auto again = [](const Tensor& t) { return t.as_strided(t.sizes(), t.strides(), t.storage_offset()); };
        EXPECT_TRUE(full_tensor(again(view)).equal(again(right)));
        EXPECT_TRUE(full_tensor(view.as_strided({3}, {1}, 0)).equal(right.as_strided({3}, {1}, 0)));
        EXPECT_TRUE(full_tensor(view.as_strided({2}, {3}, 4).detach().as_strided({2}, {1}, 6))
                        .equal(right.as_strided({2}, {1}, 6)));
      };
      expect(d, x);
      expect(d.slice(0, 1), x.slice(0, 1));
      expect(d.slice(0, 1).t().slice(0, 1), x.slice(0, 1).t().slice(0, 1));
      expect(d[2], x[2]);
      expect(d.slice(0, 1).view({9}).slice(0, 2), x.slice(0, 1).view({9}).slice(0, 2));
      expect(d.as_strided({2, 2}, {1, 1}, 3).t(), x.as_strided({2, 2}, {1, 1}, 3).t());
      Tensor changed = d.alias(), right = x.alias();
      changed.as_strided_({2}, {1}, 4);
      right.as_strided_({2}, {1}, 4);
      expect(changed, right);
    }
    // Of a gathered row nothing else is there, whatever it looks like.
    const Tensor rows = distribute_tensor(x, mesh, {Shard(0)});
    EXPECT_THAT(error_of([&] { rows[0].as_strided({2}, {1}, 0); }), HasSubstr("no memory around it"));
  });
}

TEST(AsStridedTest, TheGradientGoesWhereTheViewWas) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const auto gradient = [](Tensor x) {
      x = x.detach().requires_grad_();
      (x * 1).slice(0, 1).as_strided({2, 2}, {3, 1}, 3).sum().backward();
      return x.grad();
    };
    const Tensor x = numbers({4, 3});
    EXPECT_TRUE(full_tensor(gradient(distribute_tensor(x, mesh, {Replicate()}))).equal(gradient(x)));
  });
}

TEST(DistributeTest, APartKeepsNothingElseInMemory) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({4, 3});
    const Tensor d = distribute_tensor(x, mesh, {Shard(0)}, {.source = std::nullopt});
    EXPECT_EQ(to_local(d).storage().nbytes(), to_local(d).nbytes());
    const Tensor before = x.clone();
    d.zero_();
    EXPECT_TRUE(x.equal(before));
  });
}

TEST(FactoryTest, RangesAreAsExactAsTorchs) {
  on_ranks(3, [](const DeviceMesh& mesh) {
    const Tensor wanted = torch::arange(0., 1., 0.1, torch::kDouble);
    const Tensor got = full_tensor(arange(0., 1., 0.1, mesh, {Shard(0)}, torch::kDouble));
    EXPECT_TRUE(torch::allclose(got, wanted, 0, 1e-15)) << got - wanted;
  });
}

TEST(OutsideTest, WhatARankOutsideTheMeshBringsIsNotKept) {
  spawn(3, [](World& world) {
    const DeviceMesh mesh("cpu", Mesh({{"a", 2}}, {0, 2}));
    const Tensor d = from_local(numbers({2, 3}), mesh, {Shard(0)}, {.shape = Dims{4, 3}});
    EXPECT_EQ(to_local(d).numel(), world.rank() == 1 ? 0 : 6);
    EXPECT_EQ(d.sizes(), (at::IntArrayRef{4, 3}));
    const std::vector<Tensor> sums = at::_foreach_add(List{d}, List{numbers({4, 3})});
    EXPECT_EQ(to_local(sums[0]).numel(), world.rank() == 1 ? 0 : 6);
  });
}

TEST(ToLocalTest, WhatAProgramMakesOfAPartIsItsOwn) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor d = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    Tensor part = to_local(d);
    part.requires_grad_();
    EXPECT_FALSE(to_local(d).requires_grad());
    EXPECT_TRUE(full_tensor(d * 2).equal(numbers({4, 3}) * 2));
  });
}

TEST(GradientTest, ALeafThatIsFirstUsedInAListGetsItsPlacements) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor leaf = distribute_tensor(numbers({4, 3}), mesh, {Replicate()}).requires_grad_();
    const Tensor rows = distribute_tensor(numbers({4, 3}), mesh, {Shard(0)});
    const Tensor product =
        at::_foreach_mul(List{leaf}, List{distribute_tensor(numbers({4, 3}), mesh, {Replicate()})})[0];
    (product * rows).sum().backward();
    EXPECT_EQ(placements_of(leaf.grad()), Placements{Replicate()});
    EXPECT_TRUE(full_tensor(leaf.grad()).equal(numbers({4, 3}).pow(2)));
  });
}

// Also where each rank would find nothing wrong with its part.
TEST(RefusalTest, WhatTorchRefusesOfTheWholeIsRefused) {
  on_ranks(4, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({3, 5});
    for (int64_t dim = 0; dim < 2; ++dim) {
      const Tensor d = distribute_tensor(x, mesh, {Shard(dim)});
      EXPECT_THAT(error_of([&] {
                    at::stack({d, numbers({2, 5})});
                  }),
                  HasSubstr("stack expects each tensor to be equal"));
      EXPECT_THAT(error_of([&] { d.squeeze(5); }), HasSubstr("Dimension out of range"));
      const Tensor targets = torch::zeros({3}, torch::kLong);
      EXPECT_THAT(error_of([&] { at::cross_entropy_loss(d, targets, torch::ones({4}, torch::kDouble)); }),
                  HasSubstr("weight tensor should be defined either for all 5 classes"));
      EXPECT_THAT(error_of([&] { at::cross_entropy_loss(d, targets.to(torch::kInt)); }),
                  AnyOf(HasSubstr("expected target dtype to be Long or Byte"),
                        HasSubstr("expected scalar type Long")));  // torch 2.11
    }
  });
}

TEST(EmbeddingTest, ARowThatNobodyHasIsAnError) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor table = distribute_tensor(numbers({5, 2}), mesh, {Shard(0)});
    const Tensor fine = torch::tensor({0, 4}, torch::kLong);
    EXPECT_TRUE(full_tensor(at::embedding(table, fine)).equal(numbers({5, 2}).index_select(0, fine)));
    EXPECT_EQ(error_of([&] {
                at::embedding(table, torch::tensor({1, 7}, torch::kLong));
              }),
              "embedding: an index is out of range\n  index: 7\n  rows: 5\n  help: indices from 0 to 4");
    EXPECT_THAT(error_of([&] { at::embedding(table, torch::tensor({-1, 2}, torch::kLong)); }), HasSubstr("index: -1"));
  });
}

TEST(EmbeddingTest, ARankWithoutRowsRefusesWhatTheOthersRefuse) {
  on_ranks(4, [](const DeviceMesh& mesh) {
    const Tensor table = distribute_tensor(numbers({3, 5}), mesh, {Shard(0)});
    const Tensor ids = torch::tensor({0, 2}, torch::kLong);
    EXPECT_TRUE(full_tensor(at::embedding(table, ids)).equal(numbers({3, 5}).index_select(0, ids)));
    EXPECT_THAT(error_of([&] { at::embedding(table, torch::tensor({0., 1.})); }), HasSubstr("scalar types: Long"));
  });
}

TEST(ConvolutionTest, ARankWithoutRowsRefusesWhatTheOthersRefuse) {
  on_ranks(4, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({2, 3, 5});
    const Tensor d = distribute_tensor(x, mesh, {Shard(2)});
    const Tensor weight = numbers({4, 3, 3});
    EXPECT_TRUE(full_tensor(at::conv1d(d, weight)).equal(at::conv1d(x, weight)));
    const auto expect = [&](const std::string& text, const std::function<void()>& call) {
      EXPECT_THAT(error_of(call), HasSubstr(text));
    };
    expect("to have 2 channels", [&] { at::conv1d(d, numbers({4, 2, 3})); });
    expect("expected scalar type Double", [&] { at::conv1d(d, weight.to(torch::kFloat)); });
    expect("bias", [&] { at::conv1d(d, weight, numbers({3})); });
    expect("Kernel size can't be greater than actual input size", [&] { at::conv1d(d, numbers({4, 3, 6})); });
    const Tensor image = distribute_tensor(numbers({2, 3, 5, 4}), mesh, {Shard(2)});
    expect("pad should be at most half of", [&] { at::avg_pool2d(image, 2, 2, 2); });
    expect("pad should be at most half of", [&] { at::max_pool2d(image, 2, 2, 2); });
  });
}

TEST(ConvolutionTest, WindowsThatTorchRefusesAreLeftToIt) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const auto expect = [&](const std::string& text, const Tensor& x, const std::function<void(const Tensor&)>& call) {
      for (int64_t dim = 0; dim < x.dim(); ++dim) {
        const Tensor d = distribute_tensor(x, mesh, {Shard(dim)});
        EXPECT_THAT(error_of([&] { call(d); }), HasSubstr(text)) << dim;
      }
    };
    const Tensor row = numbers({2, 3, 8});
    const Tensor weight = numbers({4, 3, 3});
    expect("non-positive stride", row, [&](const Tensor& d) { at::conv1d(d, weight, {}, 0); });
    expect("negative padding", row, [&](const Tensor& d) { at::conv1d(d, weight, {}, 1, at::IntArrayRef({-1})); });
    expect("dilation should be greater than zero", row,
           [&](const Tensor& d) { at::conv1d(d, weight, {}, 1, at::IntArrayRef({0}), 0); });
    const Tensor plane = numbers({2, 3, 8, 8});
    expect("stride should not be zero", plane, [](const Tensor& d) { at::avg_pool2d(d, 2, 0); });
    expect("stride should not be zero", plane, [](const Tensor& d) { at::max_pool2d(d, 2, 0); });
    const Tensor rows = distribute_tensor(plane, mesh, {Shard(2)});
    EXPECT_THAT(error_of([&] { at::avg_pool2d(rows, 0, 1); }),
                AnyOf(HasSubstr("kernel size should be greater than zero"), HasSubstr("integer out of range")));
    const Tensor block = numbers({2, 1, 4, 4, 4});
    const Tensor cube = numbers({1, 1, 2, 2, 2});
    expect("expected stride to be a single integer value or a list of 3 values", block, [&](const Tensor& d) {
      at::conv3d(d, cube, {}, {1, 1});
    });
  });
}

TEST(ForeachTest, ListsOfTwoLengthsAreAnError) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor a = distribute_tensor(numbers({2, 2}), mesh, {Shard(0)});
    const auto op = c10::Dispatcher::singleton().findSchema({"aten::_foreach_mm", ""});
    if (!op) return;  // not in every torch
    torch::jit::Stack call{c10::List<Tensor>({a, a}), c10::List<Tensor>({a})};
    EXPECT_THAT(error_of([&] { op->callBoxed(call); }), HasSubstr("same number of tensors"));
  });
}

TEST(LogSigmoidTest, RoundsOnceAndIsOfNoIntegers) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    EXPECT_THAT(error_of([&] { at::log_sigmoid(distribute_tensor(torch::ones({3}, torch::kLong), mesh, {Shard(0)})); }),
                HasSubstr("not implemented for 'Long'"));
    const auto run = [](const Tensor& values) {
      const Tensor x = values.detach().requires_grad_();
      const Tensor y = at::log_sigmoid(x);
      y.sum().backward();
      return std::pair(y.detach(), x.grad());
    };
    const Tensor x = numbers({20}).div(3).to(torch::kBFloat16);
    const auto [y, grad] = run(x);
    const auto [d, of_d] = run(distribute_tensor(x, mesh, {Shard(0)}));
    EXPECT_TRUE(full_tensor(d).equal(y)) << full_tensor(d) << y;
    EXPECT_TRUE(torch::allclose(full_tensor(of_d), grad, 1e-2));
  });
}

TEST(MovingTest, TheTypeOfTheMoveHoldsTowardsAnotherMesh) {
  spawn(4, [](World&) {
    const DeviceMesh from("cpu", Mesh({{"a", 2}}, {0, 1})), to("cpu", Mesh({{"a", 2}}, {2, 3}));
    const Tensor x = torch::full({4, 4}, 1.0009765625);  // 1 + 2^-10: a bfloat16 has no such number
    const Tensor there =
        redistribute(distribute_tensor(x, from, {Shard(0)}), to, {Shard(1)}, {.move_dtype = at::kBFloat16});
    EXPECT_EQ(there.scalar_type(), at::kFloat);
    if (!to.coordinate()) return;
    EXPECT_TRUE(to_local(there).equal(torch::ones({4, 2})));
  });
}

// Whatever uses the tensor first waits for it.
TEST(AsyncTest, ATensorOnItsWayIsAnOrdinaryOne) {
  spawn(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    const Tensor x = numbers({6, 5});
    const std::vector<Placements> lists{
        {Shard(0), Replicate()}, {Shard(1), Shard(0)}, {Replicate(), Shard(1)}, {Replicate(), Replicate()}};
    const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> uses{
        {"add", [](const Tensor& t) { return t + t; }},
        {"in place", [](Tensor t) { return t.mul_(3); }},
        {"slice", [](const Tensor& t) { return t.slice(0, 1, 4).clone(); }},
        {"write through a view",
         [](const Tensor& t) {
           t.select(0, 2).fill_(9);
           return t;
         }},
        {"out",
         [](Tensor t) {
           at::neg_out(t, t + 1);
           return t;
         }},
        {"detach", [](const Tensor& t) { return t.detach() * 2; }},
        {"lists", [](const Tensor& t) { return at::_foreach_add(List{t}, List{t})[0]; }},
        {"softmax", [](const Tensor& t) { return t.softmax(0); }},
        {"mm", [](const Tensor& t) { return t.mm(t.t()); }},
        {"moved on",
         [](const Tensor& t) {
           return is_dtensor(t) ? redistribute(t, {Shard(1), Replicate()}, {.async = true}) : t;
         }},
    };
    for (const Placements& from : lists) {
      for (const Placements& to : lists) {
        for (const auto& [name, use] : uses) {
          const Tensor moved = redistribute(distribute_tensor(x, mesh, from), to, {.async = true});
          EXPECT_EQ(placements_of(moved), to);
          const Tensor got = full_tensor(use(from == to ? moved.clone() : moved));
          EXPECT_TRUE(torch::allclose(got, use(x.clone()))) << name << got;
        }
        EXPECT_EQ(to_local(redistribute(distribute_tensor(x, mesh, from), to, {.async = true})).sizes(),
                  to_local(distribute_tensor(x, mesh, to)).sizes());
      }
    }
  });
}

TEST(AsyncTest, GradientsGoBackAndListsMoveTogether) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor a = distribute_tensor(numbers({4, 4}), mesh, {Shard(0)}).requires_grad_();
    const Tensor b = from_local(numbers({4, 4}), mesh, {Partial()});
    const std::vector<Tensor> moved = redistribute(List{a, b}, {{Shard(1)}, {Replicate()}}, {.async = true});
    (moved[0] * moved[0]).sum().backward();
    EXPECT_EQ(placements_of(a.grad()), Placements{Shard(0)});
    EXPECT_TRUE(full_tensor(a.grad()).equal(numbers({4, 4}) * 2));
    EXPECT_TRUE(full_tensor(moved[1]).equal(numbers({4, 4}) * 2));
  });
}

// A backend that a program had carries one thread's calls: two would mix.
TEST(AsyncTest, AGivenGroupIsNotUsedByTwoThreads) {
  spawn(2, [](World& world) {
    const Group given = Group::from_backend(world.group().backend(c10::DeviceType::CPU), {0, 1});
    const DeviceMesh mesh = DeviceMesh::from_group(given, "cpu", "a");
    EXPECT_FALSE(given.has_background());
    for (int i = 0; i < 50; ++i) {
      const Tensor x = distribute_tensor(numbers({8, 8}), mesh, {Shard(0)});
      PendingTensor pending = redistribute_async(x, {Shard(1)});
      const Tensor sum = x.sum();  // meanwhile, on the same group
      const Tensor whole = full_tensor(sum);
      EXPECT_TRUE(full_tensor(pending.wait()).equal(numbers({8, 8})));
      EXPECT_TRUE(whole.equal(numbers({8, 8}).sum()));
    }
  });
}

TEST(AsyncTest, RanksThatMeanDifferentMeshesLearnSoWhenTheyWait) {
  spawn(2, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"a"});
    const DeviceMesh other("cpu", Mesh({{"b", 2}}, {1, 0}));
    const Tensor x = distribute_tensor(numbers({4}), mesh, {Shard(0)});
    const Tensor there = redistribute(x, other, {Shard(0)}, {.async = true});
    EXPECT_TRUE(full_tensor(there).equal(numbers({4})));
    const std::vector<Placements> targets = {{Shard(0)}, {Replicate()}};
    PendingTensor pending = redistribute_async(x, other, targets[static_cast<size_t>(world.rank())]);
    EXPECT_EQ(error_of([&] { pending.wait(); }),
              "redistribute: the ranks have different plans\n"
              "  rank 0: f64[4@a] on [a=2] -> (S(0)) on [b=2]{1, 0} by exchange to [b=2]{1, 0} 16 B\n"
              "  rank 1: f64[4@a] on [a=2] -> (R) on [b=2]{1, 0} by exchange to [b=2]{1, 0} 16 B\n"
              "  help: call redistribute with the same tensor and target on every rank");
  });
}

TEST(MovingTest, TheRecorderUsesTheWordsOfThePlan) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const DeviceMesh other("cpu", Mesh({{"b", 2}}, {1, 0}));
    const Tensor rows = distribute_tensor(numbers({8, 6}), mesh, {Shard(0)});
    const Tensor parts = from_local(numbers({8, 6}), mesh, {Partial()});
    const auto expect = [](const std::string& plan, const CommRecorder& recorder, const std::string& before = "") {
      const size_t bytes = plan.rfind(' ', plan.rfind(' ') - 1);
      EXPECT_EQ(recorder.to_string(), before + plan.substr(0, bytes) + " f64 x1" + plan.substr(bytes) + "\n");
      EXPECT_EQ(recorder.calls().back().step, plan.substr(0, bytes));
    };
    const auto move = [&](const Tensor& x, const Placements& to) {
      const CommRecorder recorder;
      const Tensor moved = redistribute(x, to, {.prefer = RedistributeOptions::Prefer::bytes});
      expect(redistribution_text(x, to, {.prefer = RedistributeOptions::Prefer::bytes}), recorder);
    };
    move(rows, {Shard(1)});
    move(rows, {Replicate()});
    move(parts, {Replicate()});
    move(parts, {Shard(0)});
    for (const Tensor& x : {rows, parts}) {
      const CommRecorder recorder;
      const Tensor moved = redistribute(x, other, {Shard(0)});
      // Towards another mesh the ranks compare what they mean.
      expect(redistribution_text(x, other, {Shard(0)}), recorder, "all_reduce i64 on ranks 0, 1 x1 16 B\n");
    }
    // What a program calls itself is of no plan.
    const CommRecorder recorder;
    all_reduce(mesh.group(0), torch::ones({2})).wait();
    EXPECT_EQ(recorder.calls().front().step, "");
  });
}

TEST(MovingTest, ManySumsAtOnceTakeNoMoreThanTheStagingBuffer) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    std::vector<Tensor> parts;
    for (int i = 0; i < 7; ++i) parts.push_back(from_local(numbers({10 + i}), mesh, {Partial()}));
    const std::vector<Placements> whole(parts.size(), Placements{Replicate()});
    const CommRecorder recorder;
    const std::vector<Tensor> sums = redistribute(parts, whole, {.staging_bytes = 2 * 16 * 8});
    for (int i = 0; i < 7; ++i) EXPECT_TRUE(to_local(sums[static_cast<size_t>(i)]).equal(numbers({10 + i}) * 2));
    // 80, 88, ... 128 bytes, two of which fit at most.
    EXPECT_EQ(recorder.calls().size(), 4) << recorder.to_string();
  });
}

// torch broadcasts from the right: a vector meets the last dim of a matrix, not the one that is sharded.
TEST(LossTest, OperandsOfDifferentNdimAreBroadcast) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = torch::arange(4.).view({4, 1});
    const Tensor y = torch::arange(4.);
    const auto rows = [&](const Tensor& z) { return distribute_tensor(z, mesh, {Shard(0)}); };
    EXPECT_EQ(full_tensor(torch::mse_loss(rows(x), y)).item<float>(), 2.5F);
    for (const int64_t reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
      using Loss = std::function<Tensor(const Tensor&, const Tensor&)>;
      for (const Loss& loss : {Loss([&](auto&a, auto&b) { return torch::mse_loss(a, b, reduction); }),
                               Loss([&](auto&a, auto&b) { return torch::smooth_l1_loss(a, b, reduction); }),
                               Loss([&](auto&a, auto&b) { return torch::huber_loss(a, b, reduction); })}) {
        EXPECT_TRUE(torch::allclose(full_tensor(loss(rows(x), y)), loss(x, y)));
        EXPECT_TRUE(torch::allclose(full_tensor(loss(x, rows(y))), loss(x, y)));
        EXPECT_TRUE(torch::allclose(full_tensor(loss(rows(y), rows(x))), loss(y, x)));
      }
    }
    const Tensor input = torch::tensor({0.1, 0.2, 0.3, 0.4}).view({2, 2});
    const Tensor target = torch::tensor({1., 0., 0., 1.}).view({2, 2});
    const Tensor weight = torch::tensor({1., 3.});
    for (const int64_t reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
      const Tensor right = torch::binary_cross_entropy(input, target, weight, reduction);
      for (const Tensor& w : {weight, rows(weight)}) {
        const Tensor loss = torch::binary_cross_entropy(rows(input), rows(target), w, reduction);
        EXPECT_TRUE(torch::allclose(full_tensor(loss), right)) << full_tensor(loss) << right;
      }
    }
  });
}

// The sum of these is beyond the largest number of their dtype, or close to it.
TEST(MeanTest, HalfPrecisionIsSummedInFloat) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
      const Tensor x = distribute_tensor(torch::full({2001}, 100., dtype), mesh, {Shard(0)});
      EXPECT_EQ(x.mean().scalar_type(), dtype);
      EXPECT_EQ(full_tensor(x.mean()).item<float>(), 100.F);
      EXPECT_EQ(full_tensor(x.mean({0}, /*keepdim=*/true)).item<float>(), 100.F);
      EXPECT_EQ(full_tensor(x.mean(torch::kFloat)).scalar_type(), torch::kFloat);
      for (const int64_t rows : {2000, 2001}) {
        const Tensor tens = distribute_tensor(torch::full({rows}, 10., dtype), mesh, {Shard(0)}).requires_grad_();
        const Tensor loss = torch::mse_loss(tens, torch::zeros({rows}, dtype));
        EXPECT_EQ(loss.scalar_type(), dtype);
        EXPECT_EQ(full_tensor(loss).item<float>(), 100.F);
        (loss * 8192).backward();  // scaled, as losses in half precision are
        const Tensor right = torch::full({rows}, 2 * 10 * 8192. / static_cast<double>(rows));
        EXPECT_TRUE(torch::allclose(full_tensor(tens.grad()).to(torch::kFloat), right, 1e-2)) << right[0];
      }
    }
  });
}

TEST(MeanTest, OfIntegersThereIsNone) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    for (const int64_t rows : {4, 5}) {
      const Tensor x = distribute_tensor(torch::arange(rows), mesh, {Shard(0)});
      EXPECT_THAT(error_of([&] { x.mean(); }), HasSubstr("a floating point or complex dtype. Got: Long"));
      EXPECT_EQ(full_tensor(x.sum()).item<int64_t>(), rows * (rows - 1) / 2);
    }
  });
}

// A rank without indices puts nothing, where the value is the same for all.
TEST(IndexPutTest, ARankWithoutIndicesAddsNothing) {
  on_ranks(3, [](const DeviceMesh& mesh) {
    c10::List<std::optional<Tensor>> places;
    places.push_back(distribute_tensor(torch::tensor({1, 2, 3, 4}, torch::kLong), mesh, {Shard(0)}));
    const Tensor x = sherd::zeros({5}, mesh, {Replicate()});
    const Tensor right = torch::tensor({0.F, 1.F, 1.F, 1.F, 1.F});
    for (const Tensor& value : {torch::tensor({1.F}), torch::tensor(1.F), torch::ones({4})}) {
      EXPECT_TRUE(full_tensor(at::index_put(x, places, value, true)).equal(right));
      EXPECT_TRUE(full_tensor(at::_unsafe_index_put(x, places, value, true)).equal(right));
    }
  });
}

// Two ranks that say yes say it once, whatever is computed of it.
TEST(PartialTest, BooleansAreNoSum) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor b = from_local(torch::ones({2}, torch::kBool), mesh, {Partial()});
    const Tensor yes = torch::ones({2});
    const auto expect = [](const Tensor& got, const Tensor& right) {
      EXPECT_TRUE(torch::allclose(full_tensor(got).to(torch::kFloat), right)) << full_tensor(got) << right;
    };
    expect(b * 1.5, yes * 1.5);
    expect(b + yes, yes * 2);
    expect(b / 2, yes / 2);
    expect(torch::where(yes > 0, b, yes * 0.5), yes);
    expect(at::cat({b, yes * 3}), torch::tensor({1.F, 1.F, 3.F, 3.F}));
    // A number that is Partial goes on being so beside booleans that are not.
    const Tensor mask = distribute_tensor(torch::tensor({true, false}), mesh, {Replicate()});
    const Tensor parts = from_local(yes, mesh, {Partial()});
    EXPECT_EQ(placements_of(parts * mask), Placements{Partial()});
    expect(parts * mask, torch::tensor({2.F, 0.F}));
    expect(parts + mask, torch::tensor({3.F, 2.F}));
    // A view computes nothing.
    EXPECT_EQ(placements_of(b.view({1, 2})), Placements{Partial()});
    expect(b.view({1, 2}), yes.view({1, 2}));
  });
}

// Tensors without elements are left out, but not their dtype.
TEST(CatTest, AnEmptyTensorCountsForTheDtype) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = torch::arange(4);
    const Tensor got = at::cat({torch::empty({0}), distribute_tensor(x, mesh, {Shard(0)})});
    EXPECT_EQ(got.scalar_type(), torch::kFloat);
    EXPECT_TRUE(full_tensor(got).equal(x.to(torch::kFloat)));
  });
}

TEST(OutTest, ARankWithoutRowsTakesPart) {
  on_ranks(4, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({3, 2});
    const Tensor d = distribute_tensor(x, mesh, {Shard(0)});
    const auto made = [&](int64_t n, Placement placement, at::ScalarType dtype) {
      return sherd::zeros({n}, mesh, {std::move(placement)}, dtype);
    };
    for (const Placement& placement : Placements{Replicate(), Shard(0)}) {
      Tensor out = made(2, placement, torch::kDouble);
      at::amax_out(out, d, {0});
      EXPECT_TRUE(full_tensor(out).equal(x.amax(0)));
      at::amin_out(out, d, {0});
      EXPECT_TRUE(full_tensor(out).equal(x.amin(0)));
      at::sum_out(out, d, {0});
      EXPECT_TRUE(full_tensor(out).equal(x.sum(0)));
      EXPECT_EQ(placements_of(out), Placements{placement});
      Tensor places = made(3, placement, torch::kLong);
      at::argmax_out(places, d, 1);
      EXPECT_TRUE(full_tensor(places).equal(x.argmax(1)));
    }
    Tensor largest = sherd::zeros({}, mesh, {Replicate()}, torch::kDouble);
    at::max_out(largest, d);
    EXPECT_TRUE(full_tensor(largest).equal(x.max()));
    Tensor plain = torch::empty({2}, torch::kDouble);
    at::amax_out(plain, d, {0});
    EXPECT_TRUE(plain.equal(x.amax(0)));
  });
}

// A plan is found by the addresses of its tensors' specs: what it does not hold could be another's one day.
TEST(PlanKeyTest, APlanHoldsTheSpecsOfItsOuts) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor d = distribute_tensor(numbers({4, 6}), mesh, {Shard(0)});
    Tensor out = sherd::zeros({6}, mesh, {Shard(0)}, torch::kDouble);
    const detail::SpecPtr spec = detail::meta_of(out)->spec;
    detail::forget_plans();
    barrier(mesh.group(0));
    const auto held = spec.use_count();
    barrier(mesh.group(0));
    at::amax_out(out, d, {0});
    EXPECT_GT(spec.use_count(), held);
  });
}

TEST(BatchNormTest, AsItServesItMovesNothing) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({4, 3, 5});
    const Tensor one = torch::ones({3}, torch::kDouble);
    const Tensor d = distribute_tensor(x, mesh, {Shard(0)});
    const auto serve = [&] {
      const ExplicitRedistribution scope;
      return List{std::get<0>(at::_native_batch_norm_legit_no_training(d, one, one, one, one * 2, 0.1, 1e-5)),
                  std::get<0>(at::_batch_norm_no_update(d, one, one, one, one * 2, 0.1, 1e-5))};
    };
    const Tensor right = torch::batch_norm(x, one, one, one, one * 2, false, 0.1, 1e-5, false);
    for (const Tensor& y : serve()) {
      EXPECT_EQ(placements_of(y), Placements{Shard(0)});
      EXPECT_TRUE(torch::allclose(full_tensor(y), right));
    }
  });
}

// A part of one channel does not tell whether channels come first or last in memory.
TEST(BatchNormTest, StridesAreTheSameOnEveryRank) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({2, 3, 4, 4});
    const Tensor d = distribute_tensor(x, mesh, {Shard(1)}).contiguous(at::MemoryFormat::ChannelsLast);
    const auto normed = [](const Tensor& input) {
      return std::get<0>(at::native_batch_norm(input, {}, {}, {}, {}, /*training=*/true, 0.1, 1e-5));
    };
    const Tensor y = normed(d);
    EXPECT_EQ(placements_of(y), Placements{Shard(1)});
    EXPECT_EQ(y.strides(), normed(x.contiguous(at::MemoryFormat::ChannelsLast)).strides());
    EXPECT_TRUE(torch::allclose(full_tensor(y), normed(x)));
  });
}

// The log is quiet until it is asked for. Settings are read once, so a process of its own asks.
TEST(LogDeathTest, AnOperatorWithoutARuleIsNamedOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto call = [](const char* log) {
    setenv("SHERD_LOG", log, /*overwrite=*/1);  // NOLINT(concurrency-mt-unsafe): before any thread
    on_ranks(2, [](const DeviceMesh& mesh) {
      const Tensor x = distribute_tensor(numbers({12}), mesh, {Shard(0)});
      const Tensor unique = std::get<0>(at::_unique(x));
      EXPECT_TRUE(full_tensor(unique).equal(std::get<0>(at::_unique(numbers({12})))));
      barrier(mesh.group(0));
      at::_unique(distribute_tensor(numbers({40}), mesh, {Shard(0)}));  // says nothing new
    });
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  const auto said = [](const std::string& text) {
    int times = 0;
    for (size_t at = text.find("no rule for"); at != std::string::npos; at = text.find("no rule for", at + 1)) ++times;
    return times;
  };
  const std::string line = "sherd: no rule for aten::_unique: it runs whole on every rank, gathering 48 B\n";
  EXPECT_EXIT(call("info"), ::testing::ExitedWithCode(0),
              ::testing::AllOf(HasSubstr(line), ::testing::ResultOf(said, 1)));
  EXPECT_EXIT(call(""), ::testing::ExitedWithCode(0), ::testing::ResultOf(said, 0));
}

}  // namespace
}  // namespace sherd::testing
