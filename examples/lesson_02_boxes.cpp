// The ground that sherd stands on, in one program: ranks on a mesh cut a matrix, exchange their parts, and put it
// together again.
//
//   lesson_02_boxes                         four ranks, as threads of this program
//   lesson_02_boxes --processes             the same as processes, started by `sherd run`
//   lesson_02_boxes --mesh "[dp=2, tp=4]"   another mesh, with as many ranks as it has places
//   lesson_02_boxes --ranks 3               a mesh of one axis

#include <sherd/collectives.h>
#include <sherd/device_mesh.h>
#include <sherd/layout.h>
#include <sherd/picture.h>
#include <sherd/world.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>

using sherd::Box;
using sherd::Dims;
using sherd::Layout;

const Dims kShape = {8, 12};

// The box of the matrix that a rank holds. Shards have one box; a shard without rows has none.
Box box_of(const Layout& layout, int64_t rank) {
  const auto boxes = sherd::local_boxes(layout, *layout.mesh.coordinate_of(rank));
  return boxes.empty() ? Box{{0, 0}, {0, 0}} : boxes.front();
}

// The part in `box` of a tensor whose first element stands at `origin` of the matrix.
torch::Tensor part(torch::Tensor tensor, const Box& box, const Dims& origin) {
  for (size_t d = 0; d < box.size.size(); ++d) {
    tensor = tensor.narrow(static_cast<int64_t>(d), box.offset[d] - origin[d], box.size[d]);
  }
  return tensor;
}

// Moves this rank's part of a matrix from one layout to another. Whatever stands both in the box that rank a holds now
// and in the box that rank b shall hold, a sends to b: that is all there is to resharding.
torch::Tensor move(const sherd::Group& group, const torch::Tensor& mine, const Layout& from, const Layout& to) {
  const Box have = box_of(from, group.rank());
  const Box want = box_of(to, group.rank());
  std::vector<torch::Tensor> outgoing;
  std::vector<int64_t> gives, takes;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto given = sherd::intersect(have, box_of(to, rank));
    const auto taken = sherd::intersect(box_of(from, rank), want);
    if (given) outgoing.push_back(part(mine, *given, have.offset).flatten());
    gives.push_back(given ? sherd::numel(*given) : 0);
    takes.push_back(taken ? sherd::numel(*taken) : 0);
  }
  const auto in = outgoing.empty() ? mine.new_empty({0}) : torch::cat(outgoing);
  const auto out = mine.new_empty({sherd::numel(want)});
  sherd::all_to_all(group, out, in, takes, gives).wait();

  const auto result = mine.new_empty(want.size);
  const auto blocks = out.split_with_sizes(takes);
  for (int rank = 0; rank < group.size(); ++rank) {
    if (const auto taken = sherd::intersect(box_of(from, rank), want)) {
      part(result, *taken, want.offset).copy_(blocks[static_cast<size_t>(rank)].view(taken->size));
    }
  }
  return result;
}

// The whole matrix, on every rank.
torch::Tensor assemble(const sherd::Group& group, const torch::Tensor& mine, const Layout& layout) {
  std::vector<int64_t> numels;
  for (int rank = 0; rank < group.size(); ++rank) numels.push_back(sherd::numel(box_of(layout, rank)));
  const auto blocks = mine.new_empty({sherd::numel(layout.shape)});
  sherd::all_gather_uneven(group, blocks, mine, numels).wait();
  const auto whole = mine.new_empty(layout.shape);
  for (int rank = 0; rank < group.size(); ++rank) {
    const Box box = box_of(layout, rank);
    part(whole, box, {0, 0}).copy_(blocks.split_with_sizes(numels)[static_cast<size_t>(rank)].view(box.size));
  }
  return whole;
}

void run_rank(const sherd::World& world, const sherd::Mesh& shape) {
  const sherd::DeviceMesh mesh("cpu", shape);
  const sherd::Group group = world.group();
  const bool speaks = world.rank() == 0;
  const sherd::TextOptions look{.color = ::isatty(STDOUT_FILENO) == 1};

  // Two ways to cut the matrix: the axes of the mesh take rows and columns in turn, or all of them cut the columns.
  Layout tiles{mesh.mesh(), kShape, {}};
  Layout columns{mesh.mesh(), kShape, {}};
  for (int64_t axis = 0; axis < mesh.ndim(); ++axis) {
    tiles.placements.push_back(sherd::Shard(axis % 2));
    columns.placements.push_back(sherd::Shard(1));
  }

  const auto matrix = torch::arange(sherd::numel(kShape)).view(kShape);
  const Box box = box_of(tiles, world.rank());
  const auto tile = part(matrix, box, {0, 0}).contiguous();
  if (speaks) std::cout << "A matrix on " << world.size() << " ranks, in tiles:\n\n" << draw_text(tiles, look);

  sherd::CommRecorder recorder;
  const auto strip = move(group, tile, tiles, columns);
  if (speaks) std::cout << "\nAn all_to_all makes columns of it:\n\n" << draw_text(columns, look);

  const auto whole = assemble(group, strip, columns);
  const std::string received = recorder.to_string();
  sherd::agree(group, "lesson_02_boxes",
               [&] { TORCH_CHECK(whole.equal(matrix), "the matrix has changed on the way"); });
  if (speaks) {
    std::cout << "\nAn all_gather puts it together again: every rank has the matrix it began with.\n\n"
              << "What rank 0 received:\n"
              << received << std::flush;
  }
}

// Starts this program again as ranks: `sherd run -n <ranks> -- lesson_02_boxes ...`, with the command beside this
// program.
[[noreturn]] void run_as_processes(int64_t ranks, const std::string& mesh) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const auto beside = self.parent_path() / "sherd";
  const std::string command = std::filesystem::exists(beside) ? beside.string() : "sherd";
  ::execlp(command.c_str(), command.c_str(), "run", "-n", std::to_string(ranks).c_str(), "--no-prefix", "--",
           self.c_str(), "--mesh", mesh.c_str(), nullptr);
  throw std::runtime_error("lesson_02_boxes: cannot start `sherd run`\n  command: " + command +
                           "\n  help: put it on the PATH");
}

int main(int argc, char** argv) try {
  std::string mesh = "[dp=2, tp=2]";
  bool processes = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--processes") {
      processes = true;
    } else if (option == "--mesh" && ++i < argc) {
      mesh = value;
    } else if (option == "--ranks" && ++i < argc) {
      mesh = "[dp=" + value + "]";
    } else {
      throw std::invalid_argument("lesson_02_boxes: no such option\n  option: " + option +
                                  "\n  help: lesson_02_boxes [--processes] [--mesh \"[dp=2, tp=4]\"] [--ranks 4]");
    }
  }
  const sherd::Mesh shape = sherd::parse_mesh(mesh);
  const bool started_as_a_rank = std::getenv("RANK") != nullptr;
  if (processes && !started_as_a_rank) run_as_processes(shape.size(), mesh);
  if (started_as_a_rank) {
    run_rank(sherd::init(), shape);
  } else {
    sherd::spawn(static_cast<int>(shape.size()), [&](sherd::World& world) { run_rank(world, shape); });
  }
  return 0;
} catch (const c10::Error& error) {
  std::cerr << error.what_without_backtrace() << "\n";
  return 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
