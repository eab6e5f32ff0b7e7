#include "parallel/ring_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <numeric>
#include <utility>

#include "comm/errors.h"
#include "comm/observer.h"
#include "parallel/attention_block.h"
#include "parallel/attention_tasks.h"
#include "sherd/collectives.h"

namespace sherd::detail {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int kKeysTag = 1;
constexpr int kGradsTag = 2;

struct KeptRing : torch::CustomClassHolder {
  explicit KeptRing(Ring r) : ring(std::move(r)) {}
  Ring ring;
};

// Keys and values as one message, and out of it again.
Tensor packed(const Tensor& key, const Tensor& value) { return at::cat({key.reshape(-1), value.reshape(-1)}); }

struct KeyValue {
  Tensor key, value;
};

class Blocks {
 public:
  Blocks(const Ring& ring, const Tensor& key, const Tensor& value)
      : ring_(ring), key_sizes_(key.sizes().vec()), value_width_(value.size(3)) {}

  int size() const { return ring_.group.size(); }
  /// Whose block is here after `step` moves.
  int owner(int step) const { return (ring_.group.rank() - step + size()) % size(); }

  KeyValue unpack(const Tensor& message, int step) const {
    std::vector<int64_t> sizes = key_sizes_;
    sizes[2] = rows(owner(step));
    const int64_t keys = c10::multiply_integers(sizes);
    Tensor key = message.narrow(0, 0, keys).view(sizes);
    sizes[3] = value_width_;
    return {key, message.narrow(0, keys, message.numel() - keys).view(sizes)};
  }

  /// A message under way to the next rank, and the one that comes in its place.
  struct Moving {
    Tensor outgoing;  // must live until it is sent
    Tensor incoming;
    Work sent, received;
    Tensor wait() {
      received.wait();
      sent.wait();
      return incoming;
    }
  };
  Moving pass_on(const Tensor& message, int step, int tag) const {
    const CauseScope cause("ring attention");
    const int me = ring_.group.rank();
    Moving moving{message, at::empty({numel(owner(step + 1))}, message.options()), {}, {}};
    const auto give = [&] { moving.sent = send(ring_.group, moving.outgoing, (me + 1) % size(), tag); };
    const auto take = [&] { moving.received = receive(ring_.group, moving.incoming, (me + size() - 1) % size(), tag); };
    // Two ranks that both send first would wait for each other where a transport works through its calls in order.
    if (me % 2 == 0) {
      give();
      take();
    } else {
      take();
      give();
    }
    return moving;
  }

 private:
  int64_t rows(int rank) const {
    const auto& runs = ring_.keys[static_cast<size_t>(rank)];
    return std::accumulate(runs.begin(), runs.end(), int64_t{0},
                           [](int64_t sum, const Run& r) { return sum + r.size; });
  }
  int64_t numel(int rank) const { return key_sizes_[0] * key_sizes_[1] * rows(rank) * (key_sizes_[3] + value_width_); }

  const Ring& ring_;
  std::vector<int64_t> key_sizes_;
  int64_t value_width_;
};

std::vector<AttentionTask> tasks_with(const Ring& ring, int owner) {
  return attention_tasks(ring.queries[static_cast<size_t>(ring.group.rank())], ring.keys[static_cast<size_t>(owner)],
                         ring.causal);
}

// The mask's columns for the keys of one rank.
Tensor mask_for(const Ring& ring, int owner) {
  if (!ring.mask.defined() || ring.mask.size(3) == 1) return ring.mask;
  std::vector<Tensor> columns;
  for (const Run& run : ring.keys[static_cast<size_t>(owner)]) {
    columns.push_back(ring.mask.narrow(3, run.offset, run.size));
  }
  return columns.size() == 1 ? columns.front() : at::cat(columns, 3);
}

// A task without a triangle takes all rows of both sides, as the mask does.
BlockForm form_of(const Ring& ring, const AttentionTask& task, const Tensor& mask) {
  return {.triangle = task.triangle, .scale = ring.scale, .mask = mask};
}

Tensor part(const Tensor& tensor, const Run& rows) { return tensor.narrow(2, rows.offset, rows.size); }

AttentionBlock part(const AttentionBlock& block, const Run& rows) {
  return {part(block.output, rows), part(block.logsumexp, rows)};
}

AttentionBlock forward_ring(const Tensor& query, const Tensor& key, const Tensor& value, const Ring& ring) {
  const Blocks blocks(ring, key, value);
  const auto options = query.options().dtype(sum_type(query.scalar_type()));
  const std::vector<int64_t> rows{query.size(0), query.size(1), query.size(2)};
  const AttentionBlock found{at::zeros({rows[0], rows[1], rows[2], value.size(3)}, options),
                             at::full(rows, -std::numeric_limits<double>::infinity(), options)};
  Tensor message = packed(key, value);
  for (int step = 0; step < blocks.size(); ++step) {
    const bool last = step + 1 == blocks.size();
    Blocks::Moving next;
    if (!last) next = blocks.pass_on(message, step, kKeysTag);
    const KeyValue block = blocks.unpack(message, step);
    const auto tasks = tasks_with(ring, blocks.owner(step));
    const Tensor mask = tasks.empty() ? Tensor() : mask_for(ring, blocks.owner(step));
    for (const AttentionTask& task : tasks) {
      join_block(part(found, task.queries), attend(part(query, task.queries), part(block.key, task.keys),
                                                   part(block.value, task.keys), form_of(ring, task, mask)));
    }
    if (!last) message = next.wait();
  }
  return found;
}

// The gradients of a block travel with it, one move behind, and come home with the last.
AttentionGrads backward_ring(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionBlock& found, const Ring& ring) {
  const Blocks blocks(ring, key, value);
  const auto options = query.options().dtype(sum_type(query.scalar_type()));
  const Tensor query_grad = at::zeros(query.sizes(), options);
  Tensor message = packed(key, value);
  Tensor grads = at::zeros({message.numel()}, options);
  for (int step = 0; step < blocks.size(); ++step) {
    const bool last = step + 1 == blocks.size();
    Blocks::Moving next;
    if (!last) next = blocks.pass_on(message, step, kKeysTag);
    const KeyValue block = blocks.unpack(message, step);
    const KeyValue sums = blocks.unpack(grads, step);
    const auto tasks = tasks_with(ring, blocks.owner(step));
    const Tensor mask = tasks.empty() ? Tensor() : mask_for(ring, blocks.owner(step));
    for (const AttentionTask& task : tasks) {
      const AttentionGrads added =
          attend_backward(part(grad, task.queries), part(query, task.queries), part(block.key, task.keys),
                          part(block.value, task.keys), part(found, task.queries), form_of(ring, task, mask));
      part(query_grad, task.queries).add_(added.query);
      part(sums.key, task.keys).add_(added.key);
      part(sums.value, task.keys).add_(added.value);
    }
    if (!last) message = next.wait();
    if (blocks.size() > 1) grads = blocks.pass_on(grads, step, kGradsTag).wait();
  }
  const KeyValue own = blocks.unpack(grads, 0);
  return {query_grad.to(query.scalar_type()), own.key.to(key.scalar_type()), own.value.to(value.scalar_type())};
}

struct RingAttention : Function<RingAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& query, const Tensor& key, const Tensor& value,
                        const Ring& ring) {
    const AttentionBlock found = forward_ring(query, key, value, ring);
    Ring kept = ring;
    kept.mask = Tensor();  // kept as a tensor of the graph: a write to it is seen
    context->saved_data["ring"] = c10::IValue::make_capsule(c10::make_intrusive<KeptRing>(std::move(kept)));
    context->save_for_backward({query, key, value, found.output, found.logsumexp, ring.mask});
    return found.output.to(query.scalar_type());
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (c10::GradMode::is_enabled()) {
      throw c10::NotImplementedError(ErrorText("ContextParallel", "attention on a ring has no second derivative")
                                         .help("call the model outside of the scope for it, or use all_to_all")
                                         .str());
    }
    const variable_list saved = context->get_saved_variables();
    Ring ring = static_cast<KeptRing*>(context->saved_data["ring"].toCapsule().get())->ring;
    ring.mask = saved[5];
    const AttentionGrads found =
        backward_ring(grads[0], saved[0], saved[1], saved[2], AttentionBlock{saved[3], saved[4]}, ring);
    return {found.query, found.key, found.value, Tensor()};
  }
};

}  // namespace

Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value, Ring ring) {
  if (!c10::GradMode::is_enabled()) return forward_ring(query, key, value, ring).output.to(query.scalar_type());
  return RingAttention::apply(query, key, value, ring);
}

}  // namespace sherd::detail
