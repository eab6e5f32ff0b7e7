#include "property/op_samples.h"

#include "property/sample_tools.h"

namespace sherd::testing {
namespace {

void add_pointwise(std::vector<OpSample>& all) {
  all.push_back(binary(
      "add", [](auto& x, auto& y) { return x + y; }, ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(binary(
      "add_broadcast", [](auto& x, auto& y) { return x + y; }, ints({4, 5}), ints({5}, 1)));
  all.push_back(binary(
      "sub_column", [](auto& x, auto& y) { return x - y; }, ints({4, 5}), ints({4, 1}, 1)));
  all.push_back(binary(
      "mul", [](auto& x, auto& y) { return x * y; }, ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(unary("add_scalar", [](auto& x) { return x + 2; }));
  all.push_back(unary("mul_scalar", [](auto& x) { return x * 3; }));
  all.push_back(unary("relu", [](auto& x) { return torch::relu(x); }));
  all.push_back(unary("exp", [](auto& x) { return torch::exp(x); }));
  all.push_back(unary("pow", [](auto& x) { return torch::pow(x, 2); }));
  all.push_back(unary(
      "neg_of_scalar_tensor", [](auto& x) { return -x; }, ints({})));
  all.push_back(unary(
      "gelu_empty", [](auto& x) { return torch::gelu(x); }, ints({0, 3})));
}

// In-place operators on something that is not a leaf.
void add_in_place(std::vector<OpSample>& all) {
  all.push_back(unary("mul_in_place", [](auto& x) { return (x * 1).mul_(3); }));
  all.push_back(binary(
      "add_in_place", [](auto& x, auto& y) { return (x * 1).add_(y, 2); }, ints({4, 5}), ints({5}, 1)));
  all.push_back(unary("relu_in_place", [](auto& x) { return (x * 1).relu_(); }));
  all.push_back(unary("fill_in_place", [](auto& x) { return (x * 1).fill_(2.5) + x; }));
  all.push_back(unary("zero_in_place", [](auto& x) { return (x * 1).zero_() + x; }));
  all.push_back(binary(
      "copy_in_place", [](auto& x, auto& y) { return (x * 1).copy_(y); }, ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(unary("transpose_in_place", [](auto& x) { return (x * 1).t_() * 2; }));
  all.push_back(unary("masked_fill", [](auto& x) { return x.masked_fill(x > 1, 7); }));
  all.push_back(
      unary("item", [](auto& x) { return torch::full({2}, x.sum().template item<double>()).to(torch::kDouble); }));
  all.push_back(unary("any_then_sum", [](auto& x) { return (x > 2).any(0).sum(); }));
  all.push_back(unary("ones_like", [](auto& x) { return torch::ones_like(x) + x; }));
}

void add_contractions(std::vector<OpSample>& all) {
  all.push_back(binary(
      "mm", [](auto& x, auto& y) { return torch::mm(x, y); }, ints({4, 5}), ints({5, 3}, 1)));
  all.push_back(binary(
      "bmm", [](auto& x, auto& y) { return torch::bmm(x, y); }, ints({2, 3, 4}), ints({2, 4, 5}, 1)));
  all.push_back({"addmm", {ints({3}), ints({4, 5}, 1), ints({5, 3}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::addmm(t[0], t[1], t[2])};
                 }});
  all.push_back({"linear_3d", {ints({2, 3, 4}), ints({5, 4}, 1), ints({5}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::linear(t[0], t[1], t[2])};
                 }});
}

void add_reductions(std::vector<OpSample>& all) {
  all.push_back(unary("sum", [](auto& x) { return x.sum(); }));
  all.push_back(unary("sum_dim", [](auto& x) { return x.sum(1); }));
  all.push_back(unary("sum_keepdim", [](auto& x) { return x.sum(0, true); }));
  all.push_back(unary("mean", [](auto& x) { return x.mean(); }));
  all.push_back(unary("max_of_all", [](auto& x) { return x.max(); }));
  all.push_back(unary("amax", [](auto& x) { return x.amax(1); }));
  all.push_back(unary("softmax", [](auto& x) { return torch::softmax(x, 1); }));
  all.push_back(unary("log_softmax", [](auto& x) { return torch::log_softmax(x, 0); }));
}

// Along a dim that may be sharded, in two passes.
void add_two_pass(std::vector<OpSample>& all) {
  all.push_back(unary("norm_of_all", [](auto& x) { return at::linalg_vector_norm(x, 2); }));
  all.push_back(unary("norm_1_dim", [](auto& x) { return at::linalg_vector_norm(x, 1, at::IntArrayRef{0}, true); }));
  all.push_back(unary("norm_3", [](auto& x) { return at::linalg_vector_norm(x + 5, 3, at::IntArrayRef{1}); }));
  all.push_back(unary("norm_inf", [](auto& x) { return at::linalg_vector_norm(x * ints({4, 5}, 2), INFINITY); }));
  all.push_back(unary("var_of_all", [](auto& x) { return x.var(); }));
  all.push_back(unary("std_dim", [](auto& x) { return x.std(at::IntArrayRef{0}, 0, true); }));
  all.push_back({"var_mean", {ints({4, 5})}, [](const Tensors& t) {
                   const auto [spread, mean] = torch::var_mean(t[0], at::IntArrayRef{1}, 1, false);
                   return Tensors{spread, mean};
                 }});
  all.push_back(unary("softmax_both", [](auto& x) { return torch::softmax(x, 0) + torch::softmax(x, 1); }));
}

// Rows picked and put by index.
void add_indexing(std::vector<OpSample>& all) {
  const auto picks = [&](const std::string& name, at::Tensor rows,
                         std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> f) {
    all.push_back(binary(name, std::move(f), ints({4, 5}), std::move(rows)));
  };
  picks("index_rows", index({6}, 4), [](auto& x, auto& i) { return x.index({i}); });
  picks("index_rows_2d", index({2, 3}, 4), [](auto& x, auto& i) { return x.index({i}); });
  picks("index_columns", index({3}, 5), [](auto& x, auto& i) { return x.index({torch::indexing::Slice(), i}); });
  picks("index_pairs", index({4}, 4), [](auto& x, auto& i) { return x.index({i, i}); });
  picks("index_by_mask", index({4}, 4), [](auto& x, auto& i) { return x.index({i > 1}); });
  all.push_back({"index_apart", {ints({4, 3, 5}), index({2}, 4), index({2}, 5)}, [](const Tensors& t) {
                   return Tensors{t[0].index({t[1], torch::indexing::Slice(), t[2]})};
                 }});
  all.push_back({"index_put", {ints({4, 5}), index({2}, 4), ints({2, 5}, 3)}, [](const Tensors& t) {
                   return Tensors{t[0].index_put({t[1]}, t[2])};
                 }});
  all.push_back({"index_put_accumulate", {ints({4, 5}), index({6}, 4), ints({6, 5}, 3)}, [](const Tensors& t) {
                   return Tensors{t[0].index_put({t[1]}, t[2], true)};
                 }});
  all.push_back({"index_put_broadcast", {ints({4, 5}), index({2}, 4), ints({1}, 3)}, [](const Tensors& t) {
                   return Tensors{t[0].index_put({t[1]}, t[2])};
                 }});
  all.push_back({"index_add", {ints({4, 5}), index({6}, 4), ints({6, 5}, 3)}, [](const Tensors& t) {
                   return Tensors{t[0].index_add(0, t[1], t[2], 2)};
                 }});
  all.push_back({"index_copy", {ints({4, 5}), index({3}, 4), ints({3, 5}, 3)}, [](const Tensors& t) {
                   return Tensors{t[0].index_copy(0, t[1], t[2])};
                 }});
  all.push_back({"scatter", {ints({4, 5}), index({4, 2}, 5), ints({4, 2}, 3)}, [](const Tensors& t) {
                   return Tensors{t[0].scatter(1, t[1], t[2])};
                 }});
  picks("scatter_value", index({4, 2}, 5), [](auto& x, auto& i) { return x.scatter(1, i, 2.5); });
  picks("gather_shorter", index({3, 5}, 4), [](auto& x, auto& i) { return x.gather(0, i); });
  picks("take_along", index({4, 2}, 5), [](auto& x, auto& i) { return x.take_along_dim(i, 1); });
}

void add_views(std::vector<OpSample>& all) {
  all.push_back(unary("transpose", [](auto& x) { return x.t(); }));
  all.push_back(unary(
      "permute",
      [](auto& x) {
        return x.permute({2, 0, 1});
      },
      ints({2, 3, 4})));
  all.push_back(unary(
      "flatten", [](auto& x) { return x.flatten(); }, ints({4, 3})));
  all.push_back(unary(
      "split_heads",
      [](auto& x) {
        return x.view({2, 3, 2, 4}).transpose(1, 2);
      },
      ints({2, 3, 8})));
  all.push_back(unary(
      "merge_first",
      [](auto& x) {
        return x.view({6, 4});
      },
      ints({2, 3, 4})));
  all.push_back(unary(
      "reshape_uneven",
      [](auto& x) {
        return x.reshape({4, 6});
      },
      ints({6, 4})));
  all.push_back(unary(
      "reshape_of_permuted",
      [](auto& x) {
        return x.permute({2, 0, 1}).reshape({4, 6});
      },
      ints({2, 3, 4})));
  all.push_back(binary(
      "reshape_of_permuted_product",
      [](auto& x, auto& y) {
        return torch::bmm(x.transpose(1, 2), y).permute({2, 0, 1}).reshape({4, 4, 2});
      },
      ints({2, 3, 4}), ints({2, 3, 4}, 1)));
  all.push_back(unary("slice", [](auto& x) { return x.slice(0, 1, 3); }));
  all.push_back(unary("select", [](auto& x) { return x.select(1, 2); }));
  all.push_back(unary("unsqueeze_squeeze", [](auto& x) { return x.unsqueeze(1).squeeze(); }));
  all.push_back(unary("expand", [](auto& x) { return x.expand({3, 4, 5}); }));
  all.push_back(binary(
      "cat",
      [](auto& x, auto& y) {
        return torch::cat({x, y}, 1);
      },
      ints({4, 5}), ints({4, 2}, 1)));
  all.push_back(binary(
      "stack",
      [](auto& x, auto& y) {
        return torch::stack({x, y}, 1);
      },
      ints({4, 5}), ints({4, 5}, 1)));
  all.push_back({"chunk", {ints({4, 6})}, [](const Tensors& t) { return t[0].chunk(3, 1); }});
}

// Rows of a dim that may be sharded: cut, picked, moved.
void add_row_views(std::vector<OpSample>& all) {
  all.push_back(unary("slice_columns_step", [](auto& x) { return x.slice(1, 1, 5, 2); }));
  all.push_back(unary("slice_of_slice", [](auto& x) { return x.slice(0, 1, 4).slice(0, 1, 2) * 2; }));
  all.push_back(unary("slice_none", [](auto& x) { return x.slice(0, 2, 2); }));
  all.push_back(unary("slice_last_row", [](auto& x) { return x.slice(0, -1); }));
  all.push_back(unary("slice_plus_slice", [](auto& x) { return x.slice(1, 0, 4) + x.slice(1, 1, 5); }));
  all.push_back(unary("select_first", [](auto& x) { return x.select(0, 0); }));
  all.push_back(unary("select_last", [](auto& x) { return x.select(0, -1); }));
  all.push_back({"unbind", {ints({4, 3})}, [](const Tensors& t) { return t[0].unbind(0); }});
  all.push_back({"split_uneven", {ints({5, 3})}, [](const Tensors& t) { return t[0].split({1, 3, 1}, 0); }});
  all.push_back({"split_even", {ints({6, 3})}, [](const Tensors& t) { return t[0].split(4, 0); }});
  all.push_back(unary("flip_columns", [](auto& x) { return x.flip({1}); }));
  all.push_back(unary("flip_both", [](auto& x) { return x.flip({0, 1}); }));
  all.push_back(unary("roll_columns", [](auto& x) { return x.roll({2}, {1}); }));
  all.push_back(unary("roll_all", [](auto& x) { return x.roll({3}); }));
  all.push_back(unary("diagonal", [](auto& x) { return x.diagonal(1); }));
  all.push_back(unary("narrow", [](auto& x) { return x.narrow(1, 1, 3); }));
  all.push_back(unary("unfold", [](auto& x) { return x.unfold(1, 2, 1); }));
  all.push_back(unary("as_strided_rows", [](auto& x) { return x.as_strided({2, 5}, {5, 1}, 5); }));
  all.push_back(unary("as_strided_transposed", [](auto& x) { return x.as_strided({3, 2}, {1, 10}, 1); }));
  all.push_back(unary("as_strided_of_transposed", [](auto& x) { return (x * 2).t().as_strided({2, 5}, {5, 1}, 5); }));
  all.push_back(unary("as_strided_diagonal", [](auto& x) { return x.as_strided({4}, {6}, 0); }));
}

// Writes through a view reach the tensor, and writes to the tensor reach its views.
void add_writes_through_views(std::vector<OpSample>& all) {
  const auto writes = [&](const std::string& name, std::function<void(const at::Tensor&)> write) {
    all.push_back(unary("write_" + name, [write](auto& x) {
      const at::Tensor z = x * 1;
      write(z);
      return z * 2;
    }));
  };
  writes("row", [](auto& z) { z.select(0, 0).fill_(5); });
  writes("row_scaled", [](auto& z) { z.select(0, 2).mul_(3); });
  writes("last_row_zero", [](auto& z) { z.select(0, -1).zero_(); });
  writes("column", [](auto& z) { z.select(1, 1).mul_(2); });
  writes("column_copied", [](auto& z) { z.select(1, 3).copy_(z.select(1, 0) * 2); });
  writes("rows", [](auto& z) { z.slice(0, 1, 3).mul_(2); });
  writes("columns_step", [](auto& z) { z.slice(1, 0, 5, 2).add_(1); });
  writes("element", [](auto& z) { z.select(0, 1).select(0, 2).mul_(4); });
  writes("flat", [](auto& z) { z.view(-1).slice(0, 3, 9).mul_(2); });
  writes("transposed", [](auto& z) { z.t().select(0, 2).mul_(-1); });
  writes("diagonal", [](auto& z) { z.diagonal().mul_(3); });
  writes("strided", [](auto& z) { z.as_strided({2, 2}, {5, 1}, 6).mul_(3); });
  writes("index", [](at::Tensor z) {
    using torch::indexing::Slice;
    z.index_put_({1, Slice(1, 3)}, 7);
  });
  // One call that writes two views of one tensor.
  all.push_back(unary("write_list_of_rows", [](auto& x) {
    const at::Tensor z = (x * 1).detach();
    torch::_foreach_mul_(std::vector<at::Tensor>{z.select(0, 0), z.slice(0, 2, 4)}, 3);
    at::Tensor values = z.select(1, 4);
    at::Tensor again = z.select(1, 0);
    torch::aminmax_out(values, again, z.slice(1, 1, 4).clone(), 1);
    return z + x;
  }));
  all.push_back(unary("write_seen_by_row", [](auto& x) {
    const at::Tensor z = x * 1;
    const at::Tensor row = z.select(0, 1);
    z.mul_(2);
    return row * 3;
  }));
  all.push_back(unary("write_seen_by_other_view", [](auto& x) {
    const at::Tensor z = x * 1;
    const at::Tensor row = z.select(0, 1);
    const at::Tensor column = z.select(1, 1);
    row.mul_(2);
    column.add_(1);
    return row * 3 + z;
  }));
  all.push_back(unary("write_through_detached", [](auto& x) {
    const at::Tensor z = (x * 1).detach();
    z.select(0, 1).detach().fill_(3);
    z.data().select(1, 1).fill_(4);
    for (const at::Tensor& part : z.unbind(1)) part.add_(1);
    return z + x;
  }));
}

void add_networks(std::vector<OpSample>& all) {
  all.push_back({"embedding", {ints({7, 4}), index({2, 3}, 7)}, [](const Tensors& t) {
                   return Tensors{torch::embedding(t[0], t[1])};
                 }});
  all.push_back({"layer_norm", {ints({4, 6}), ints({6}, 1), ints({6}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::layer_norm(t[0], {6}, t[1], t[2])};
                 }});
  all.push_back({"layer_norm_3d", {ints({2, 3, 4}), ints({4}, 1), ints({4}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::layer_norm(t[0], {4}, t[1], t[2])};
                 }});
  // The gradient that reaches the norm is Partial where `y` is cut, and mean and rstd are then cut themselves.
  all.push_back({"layer_norm_then_linear", {ints({2, 4, 4}), ints({4}, 1), ints({6, 4}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::linear(torch::layer_norm(t[0], {4}, t[1]), t[2])};
                 }});
  all.push_back({"attention", {ints({2, 4, 3, 2}), ints({2, 4, 3, 2}, 1), ints({2, 4, 3, 2}, 2)}, [](const Tensors& t) {
                   return Tensors{at::scaled_dot_product_attention(t[0], t[1], t[2], {}, 0.0, true)};
                 }});
  // As torch::nn::MultiheadAttention does it: one product for all three, heads split from the middle dim.
  all.push_back(
      {"self_attention", {ints({4, 2, 4}), ints({12, 4}, 1)}, [](const Tensors& t) {
         const auto parts = torch::linear(t[0], t[1] / 4).chunk(3, -1);
         const auto heads = [](const at::Tensor& x) { return x.contiguous().view({4, 4, 2}).transpose(0, 1); };
         const at::Tensor scores = torch::softmax(torch::bmm(heads(parts[0]), heads(parts[1]).transpose(1, 2)), -1);
         return Tensors{torch::bmm(scores, heads(parts[2])).transpose(0, 1).contiguous().view({4, 2, 4})};
       }});
  all.push_back({"conv2d", {ints({4, 3, 5, 5}), ints({6, 3, 3, 3}, 1), ints({6}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::conv2d(t[0], t[1], t[2])};
                 }});
  all.push_back({"conv1d_grouped", {ints({3, 4, 6}), ints({4, 2, 3}, 1)}, [](const Tensors& t) {
                   return Tensors{torch::conv1d(t[0], t[1], at::Tensor(), at::IntArrayRef{1}, at::IntArrayRef{0},
                                                at::IntArrayRef{1}, 2)};
                 }});
  all.push_back({"conv_transpose2d", {ints({2, 4, 3, 3}), ints({4, 3, 2, 2}, 1), ints({3}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::conv_transpose2d(t[0], t[1], t[2])};
                 }});
  all.push_back({"group_norm", {ints({4, 6, 3}), ints({6}, 1), ints({6}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::group_norm(t[0], 3, t[1], t[2])};
                 }});
  all.push_back({"rms_norm", {ints({4, 6}), ints({6}, 1)}, [](const Tensors& t) {
                   return Tensors{torch::rms_norm(t[0], {6}, t[1])};
                 }});
  all.push_back({"einsum", {ints({2, 3, 4}), ints({2, 4, 5}, 1)}, [](const Tensors& t) {
                   return Tensors{torch::einsum("bik,bkj->bij", {t[0], t[1]})};
                 }});
  all.push_back(
      {"batch_norm",
       {ints({4, 3, 5}), ints({3}, 1), ints({3}, 2)},
       [](const Tensors& t) { return Tensors{torch::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false)}; },
       1e-8});
  all.push_back(unary(
      "max_pool2d", [](auto& x) { return torch::max_pool2d(x, 2); }, ints({2, 3, 4, 4})));
  all.push_back({"cross_entropy_ignore", {ints({5, 4}), index({5}, 4)}, [](const Tensors& t) {
                   namespace F = torch::nn::functional;
                   return Tensors{F::cross_entropy(t[0], t[1], F::CrossEntropyFuncOptions().ignore_index(1))};
                 }});
  all.push_back({"cross_entropy", {ints({4, 5}), index({4}, 5)}, [](const Tensors& t) {
                   return Tensors{torch::nn::functional::cross_entropy(t[0], t[1])};
                 }});
}

// One sample for rows of the tables that no other sample reaches.
void add_table_rows(std::vector<OpSample>& all) {
  all.push_back({"where", {ints({4, 5}), ints({4, 5}, 1), ints({4, 5}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::where(t[0] > 0, t[1], t[2])};
                 }});
  all.push_back({"addcmul", {ints({4, 5}), ints({4, 5}, 1), ints({5}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::addcmul(t[0], t[1], t[2], 2)};
                 }});
  all.push_back({"lerp", {ints({4, 5}), ints({4, 5}, 1), ints({4, 1}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::lerp(t[0], t[1], t[2])};
                 }});
  all.push_back(binary(
      "div", [](auto& x, auto& y) { return x / (y * y + 1); }, ints({4, 5}), ints({4, 5}, 1)));
  all.push_back(unary("rsub", [](auto& x) { return 3 - x; }));
  all.push_back(unary("clone", [](auto& x) { return x.clone(); }));
  all.push_back(unary("to_float", [](auto& x) { return x.to(torch::kFloat).to(torch::kDouble); }));
  all.push_back(unary("tril", [](auto& x) { return x.tril(); }));
  all.push_back(unary("cumsum", [](auto& x) { return x.cumsum(0); }));
  all.push_back(unary("prod", [](auto& x) { return x.prod(1); }));
  all.push_back(unary("mean_dim", [](auto& x) { return x.mean(1); }));
  all.push_back(unary("var", [](auto& x) { return x.var(1); }));
  all.push_back(unary("norm", [](auto& x) { return (x + 5).norm(2, {1}); }));
  all.push_back(unary("logsumexp", [](auto& x) { return x.logsumexp(1); }));
  all.push_back({"max_dim", {ints({4, 5})}, [](const Tensors& t) { return Tensors{std::get<0>(t[0].max(1))}; }});
  all.push_back({"sort", {ints({4, 5})}, [](const Tensors& t) { return Tensors{std::get<0>(t[0].sort(1))}; }});
  all.push_back(unary("argmax", [](auto& x) { return x.argmax(1); }));
  all.back().differentiable = false;
  all.push_back(binary(
      "mv", [](auto& x, auto& y) { return torch::mv(x, y); }, ints({4, 5}), ints({5}, 1)));
  all.push_back(binary(
      "dot", [](auto& x, auto& y) { return torch::dot(x, y); }, ints({5}), ints({5}, 1)));
  all.push_back({"baddbmm", {ints({2, 3, 5}), ints({2, 3, 4}, 1), ints({2, 4, 5}, 2)}, [](const Tensors& t) {
                   return Tensors{torch::baddbmm(t[0], t[1], t[2])};
                 }});
  all.push_back(unary(
      "avg_pool2d", [](auto& x) { return torch::avg_pool2d(x, 2); }, ints({2, 3, 4, 4})));
  all.push_back(unary(
      "adaptive_avg_pool2d",
      [](auto& x) {
        return torch::adaptive_avg_pool2d(x, {2, 2});
      },
      ints({2, 3, 4, 4})));
  all.push_back({"batch_norm_eval",
                 {ints({4, 3, 5}), ints({3}, 1), ints({3}, 2)},
                 [](const Tensors& t) {
                   return Tensors{torch::batch_norm(t[0], t[1], t[2], (t[1] * t[1]).detach(),
                                                    (t[2] * t[2] + 1).detach(), false, 0.1, 1e-5, false)};
                 },
                 1e-8,
                 false});
  all.push_back({"conv2d_no_bias", {ints({4, 3, 5, 5}), ints({6, 3, 3, 3}, 1)}, [](const Tensors& t) {
                   return Tensors{torch::conv2d(t[0], t[1])};
                 }});
  all.push_back({"index_select", {ints({4, 5}), index({3}, 4)}, [](const Tensors& t) {
                   return Tensors{t[0].index_select(0, t[1])};
                 }});
  all.push_back(
      {"gather", {ints({4, 5}), index({4, 3}, 5)}, [](const Tensors& t) { return Tensors{t[0].gather(1, t[1])}; }});
  all.push_back({"scatter_add", {ints({4, 5}), index({4, 3}, 5), ints({4, 3}, 1)}, [](const Tensors& t) {
                   return Tensors{t[0].scatter_add(1, t[1], t[2])};
                 }});
  all.push_back(unary("cumprod", [](auto& x) { return x.cumprod(1); }));
}

// More of the same: operators whose rows PyTorch's own sharded tensors have, too.
void add_more_table_rows(std::vector<OpSample>& all) {
  const auto whole_numbers = [&](OpSample sample) {
    sample.differentiable = false;
    all.push_back(std::move(sample));
  };
  all.push_back(unary("diag_embed", [](auto& x) { return x.diag_embed(1, 0, 2); }));
  all.push_back(unary(
      "diagonal_batched", [](auto& x) { return x.diagonal(0, 1, 2); }, ints({3, 4, 4})));
  all.push_back(unary("glu", [](auto& x) { return torch::glu(x, 0); }));
  all.push_back(unary("renorm", [](auto& x) { return x.renorm(2, 1, 3.0); }));
  all.push_back(unary("log_sigmoid", [](auto& x) { return torch::log_sigmoid(x); }));
  all.push_back(binary(
      "prelu", [](auto& x, auto& w) { return torch::prelu(x, w); }, ints({4, 5}), ints({5}, 1)));
  all.push_back(unary("hardswish", [](auto& x) { return torch::hardswish(x) + torch::hardshrink(x, 1.5); }));
  all.push_back({"select_scatter", {ints({4, 5}), ints({5}, 1)}, [](const Tensors& t) {
                   return Tensors{torch::select_scatter(t[0], t[1], 0, 2)};
                 }});
  all.push_back({"slice_scatter", {ints({4, 5}), ints({2, 5}, 1)}, [](const Tensors& t) {
                   return Tensors{torch::slice_scatter(t[0], t[1], 0, 1, 3)};
                 }});
  all.push_back({"diagonal_scatter", {ints({4, 5}), ints({4}, 1)}, [](const Tensors& t) {
                   return Tensors{torch::diagonal_scatter(t[0], t[1], 1)};
                 }});
  all.push_back({"index_fill", {ints({4, 5}), index({2}, 4)}, [](const Tensors& t) {
                   return Tensors{t[0].index_fill(0, t[1], 2.5)};
                 }});
  all.push_back({"index_reduce", {ints({4, 5}), index({3}, 4), ints({3, 5}, 3)}, [](const Tensors& t) {
                   return Tensors{t[0].index_reduce(0, t[1], t[2], "amax")};
                 }});
  // Small products, which 16-bit floats have all digits of; a rank may have one column.
  all.push_back({"index_reduce_bfloat16", {ints({4, 3}), index({3}, 2), ints({3, 3}, 3)}, [](const Tensors& t) {
                   const auto factor = [](const at::Tensor& x) { return x.remainder(2).add(2).to(torch::kBFloat16); };
                   return Tensors{factor(t[0]).index_reduce(0, t[1], factor(t[2]), "prod")};
                 }});
  all.push_back({"scatter_reduce", {ints({4, 5}), index({4, 3}, 5), ints({4, 3}, 1)}, [](const Tensors& t) {
                   return Tensors{t[0].scatter_reduce(1, t[1], t[2], "amax")};
                 }});
  all.push_back({"scatter_rows", {ints({5, 3}), index({4, 3}, 5), ints({4, 3}, 1)}, [](const Tensors& t) {
                   return Tensors{t[0].scatter(0, t[1].slice(1, 0, 3), t[2]), t[0].scatter_add(0, t[1], t[2]),
                                  t[0].scatter_reduce(0, t[1], t[2], "amin", false)};
                 }});
  all.push_back({"write_rows_by_index", {ints({5, 3}), index({3}, 5), ints({3, 3}, 1)}, [](const Tensors& t) {
                   at::Tensor z = t[0] * 1;
                   z.index_add_(0, t[1], t[2]).index_fill_(0, t[1].slice(0, 0, 1), 2);
                   z.index_put_({t[1], t[1].remainder(3)}, t[2].select(1, 0), true);
                   return Tensors{z, t[0].index_copy(0, t[1], t[2])};
                 }});
  all.push_back({"embedding_bag", {ints({7, 4}), index({6}, 7)}, [](const Tensors& t) {
                   const at::Tensor offsets = torch::tensor({0, 2, 3});
                   return Tensors{std::get<0>(torch::embedding_bag(t[0], t[1], offsets)),
                                  std::get<0>(torch::embedding_bag(t[0], t[1], offsets, false, 2))};
                 }});
  all.push_back({"embedding_bag_of_rows", {ints({7, 4}), index({3, 2}, 7), ints({3, 2}, 1)}, [](const Tensors& t) {
                   namespace F = torch::nn::functional;
                   const auto sum = F::EmbeddingBagFuncOptions().mode(torch::kSum).per_sample_weights(t[2]);
                   return Tensors{F::embedding_bag(t[1], t[0]), F::embedding_bag(t[1], t[0], sum)};
                 }});
  all.push_back({"foreach_norm", {ints({4, 5}), ints({3}, 1)}, [](const Tensors& t) {
                   Tensors results = torch::_foreach_norm(t, 2);
                   results.push_back(torch::_foreach_norm(t, INFINITY)[0]);
                   return results;
                 }});
  all.push_back({"foreach_max", {ints({4, 5}), ints({3}, 1)}, [](const Tensors& t) {
                   return torch::_foreach_max({t[0].detach(), t[1].detach()});
                 }});
  all.push_back({"scatter_multiply", {ints({4, 5}), index({4, 3}, 5), ints({4, 3}, 1)}, [](const Tensors& t) {
                   return Tensors{t[0].detach().scatter(1, t[1], t[2].detach(), "multiply")};
                 }});
  all.back().differentiable = false;
  whole_numbers(binary(
      "bucketize", [](auto& x, auto& b) { return torch::bucketize(x, std::get<0>(b.sort())); }, ints({4, 5}),
      ints({6})));
  whole_numbers(binary(
      "searchsorted", [](auto& s, auto& x) { return torch::searchsorted(std::get<0>(s.sort(1)), x); }, ints({4, 6}),
      ints({4, 3}, 1)));
  whole_numbers(binary(
      "isin", [](auto& x, auto& y) { return torch::isin(x, y); }, index({4, 5}, 7), index({3}, 5)));
  all.push_back(binary(
      "take", [](auto& x, auto& i) { return x.take(i); }, ints({4, 5}), index({2, 3}, 20)));
  whole_numbers(unary("view_as_long", [](auto& x) { return x.detach().view(torch::kLong); }));
  whole_numbers(unary("view_as_int", [](auto& x) { return x.detach().view(torch::kInt); }));
  whole_numbers(unary("equal", [](auto& x) {
    return torch::tensor({torch::equal(x, x * 1), torch::equal(x, x + (x > 3))});
  }));
  whole_numbers(unary("ge_in_place", [](auto& x) { return x.detach().clone().ge_(2); }));
  all.push_back(unary("trace", [](auto& x) { return x.trace(); }));
  all.push_back({"cross_entropy2d", {ints({3, 4, 5}), index({3, 5}, 4)}, [](const Tensors& t) {
                   return Tensors{torch::nn::functional::cross_entropy(t[0].unsqueeze(2), t[1].unsqueeze(1))};
                 }});
  all.push_back({"nll_loss2d_each", {ints({3, 4, 2, 5}), index({3, 2, 5}, 4)}, [](const Tensors& t) {
                   return Tensors{torch::nll_loss2d(t[0], t[1], {}, at::Reduction::None)};
                 }});
  for (const int64_t reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
    const std::string kind = std::to_string(reduction);
    all.push_back({"multi_margin_loss_" + kind, {ints({5, 4}), index({5}, 4)}, [=](const Tensors& t) {
                     return Tensors{torch::multi_margin_loss(t[0], t[1], 1, 1, {}, reduction)};
                   }});
    all.push_back({"multilabel_margin_loss_" + kind, {ints({5, 4}), index({5, 4}, 4)}, [=](const Tensors& t) {
                     return Tensors{torch::multilabel_margin_loss(t[0], t[1], reduction)};
                   }});
  }
}

void add_losses(std::vector<OpSample>& all) {
  const auto add = [&](const char* name, auto loss) {
    for (const int64_t reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
      const char* kind = reduction == at::Reduction::None ? "_each" : reduction == at::Reduction::Mean ? "" : "_sum";
      all.push_back(binary(
          std::string(name) + kind, [=](auto& x, auto& y) { return loss(x, y, reduction); }, ints({4, 5}),
          ints({4, 5}, 1)));
    }
  };
  add("mse_loss", [](auto& x, auto& y, int64_t r) { return torch::mse_loss(x, y, r); });
  add("smooth_l1_loss", [](auto& x, auto& y, int64_t r) { return torch::smooth_l1_loss(x, y, r); });
  add("huber_loss", [](auto& x, auto& y, int64_t r) { return torch::huber_loss(x, y, r); });
  add("binary_cross_entropy", [](auto& x, auto& y, int64_t r) {
    return torch::binary_cross_entropy(torch::sigmoid(x), torch::sigmoid(y), {}, r);
  });
}

}  // namespace

std::vector<OpSample> op_samples() {
  std::vector<OpSample> all;
  add_pointwise(all);
  add_in_place(all);
  add_contractions(all);
  add_reductions(all);
  add_two_pass(all);
  add_indexing(all);
  add_views(all);
  add_row_views(all);
  add_writes_through_views(all);
  add_networks(all);
  add_table_rows(all);
  add_losses(all);
  add_more_table_rows(all);
  add_linear_algebra(all);
  add_spatial(all);
  add_along_sharded(all);
  return all;
}

}  // namespace sherd::testing
