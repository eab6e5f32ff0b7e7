// Lesson 2: a tensor in boxes.
//
// A DTensor is one tensor that many ranks hold together. Its sizes are those of the whole; each rank has a box of it. A
// *placement* per axis of the mesh says how: Shard(d) cuts dim d, Replicate() gives everybody all, Partial() means that
// the ranks' numbers have yet to be added up.

#include <sherd/sherd.h>
#include <torch/torch.h>

#include <iostream>
#include <string>

int main() {
  sherd::spawn(4, [](sherd::World& world) {
    const auto mesh = sherd::init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const auto matrix = torch::arange(96.).view({8, 12});

    // Rank 0's matrix goes out in tiles: dp cuts the rows, tp the columns.
    const auto tiles = sherd::distribute_tensor(matrix, mesh, {sherd::Shard(0), sherd::Shard(1)});
    TORCH_CHECK(tiles.size(0) == 8 && sherd::to_local(tiles).size(0) == 4);

    // Which box of the matrix this rank has follows from sizes and placements. Nobody needs to be asked.
    const sherd::Box box = sherd::local_boxes(sherd::layout_of(tiles), *mesh.coordinate()).front();
    const auto part = matrix.slice(0, box.offset[0], box.offset[0] + box.size[0])
                          .slice(1, box.offset[1], box.offset[1] + box.size[1]);
    TORCH_CHECK(sherd::to_local(tiles).equal(part));

    // The same numbers in other places. What stands both in the box that one rank has and in the box that another shall
    // have, the one sends to the other: that is all there is to it.
    const sherd::Placements columns = {sherd::Shard(1), sherd::Shard(1)};
    const std::string how = sherd::redistribution_text(tiles, columns);
    const auto strips = sherd::redistribute(tiles, columns);
    TORCH_CHECK(sherd::full_tensor(strips).equal(matrix));

    // Operators leave the numbers where they are if they can. The sum over rows that dp has cut is Partial over dp;
    // reading it adds up.
    const auto sums = tiles.sum(0);
    TORCH_CHECK(sherd::full_tensor(sums).equal(matrix.sum(0)));

    if (world.rank() != 0) return;
    std::cout << "tiles:\n" << sherd::visualize(tiles);
    std::cout << "rank 0 has " << to_string(box) << "\n\n";
    std::cout << "strips, by " << how << ":\n" << sherd::visualize(strips);
    std::cout << "\nsums: " << sherd::to_string(sums) << "\n";
  });
}

// try: seven rows in place of eight. Which ranks have fewer, and is the sum still right? Or {Replicate(), Shard(0)},
// and look at the picture.
