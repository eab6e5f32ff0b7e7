#pragma once
// What the dispatch benchmark measures: each case as two functions, on local tensors and on sharded ones.
// dispatch_peer.py has the same cases in the same order.

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "sherd/device_mesh.h"

/// One call of an operator on given tensors.
struct Operator {
  std::string name;
  std::function<void()> run;
};

/// The operators on tensors whose local shards have 8 columns and `rows` rows: Shard(0) for the data, Replicate for
/// weights, so that nothing has to move.
std::vector<Operator> local_operators(int64_t rows, at::Device device);
std::vector<Operator> sharded_operators(int64_t rows, const sherd::DeviceMesh& mesh);

struct Case {
  std::string name;
  bool gradients = false;
  std::function<void()> local;
  std::function<void()> sharded;
};

/// Every operator on 8x8 local shards, then a training step of a small MLP. The cases keep their tensors.
std::vector<Case> make_cases(const sherd::DeviceMesh& mesh);
