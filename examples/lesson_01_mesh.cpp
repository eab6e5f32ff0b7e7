// Lesson 1: worlds and meshes.
//
// A program that computes on several devices is the same program run by several *ranks*. They form a *world*; each
// knows its number and how many there are. Here they are threads of this process. `sherd run -n 8 -- ./program` would
// make them processes, and sherd::init() would then give the world that spawn() gives here; nothing else changes.

#include <sherd/collectives.h>
#include <sherd/device_mesh.h>
#include <sherd/world.h>
#include <torch/torch.h>

#include <iostream>
#include <string>
#include <vector>

int main() {
  sherd::spawn(8, [](sherd::World& world) {
    // A mesh gives ranks places: here 2 x 2 x 2. Its axes have names, and a rank has a coordinate.
    //
    //        tp 0  tp 1             tp 0  tp 1
    //  dp 0    0     1       dp 0     4     5
    //  dp 1    2     3       dp 1     6     7
    //       pp 0                  pp 1
    const auto mesh = sherd::init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"});
    const sherd::Dims coordinate = *mesh.coordinate();
    TORCH_CHECK(world.rank() == 4 * coordinate[0] + 2 * coordinate[1] + coordinate[2]);

    // Along each axis the ranks can talk. `group` is the ranks that differ from this one in nothing but `tp`.
    const sherd::Group group = mesh.group("tp");
    const auto total = torch::full({1}, world.rank());
    sherd::all_reduce(group, total).wait();
    TORCH_CHECK(total.item<int64_t>() == 2 * (world.rank() / 2 * 2) + 1);

    // A slice is a mesh, too; its groups are those of the whole. So a library that wants one axis gets one axis.
    const auto inner = mesh[{"dp", "tp"}];
    TORCH_CHECK(inner.group("tp") == group);

    // Several axes as one, when all their ranks have something to say to each other.
    const auto flat = inner.flatten("dp_tp");
    const std::vector<std::string> names = sherd::all_gather_text(flat.group(0), std::to_string(world.rank()));

    // Meshes are values: one that is made again is the same.
    TORCH_CHECK(mesh == sherd::init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"}));
    TORCH_CHECK(mesh["dp_tp"] == flat);

    if (world.rank() != 5) return;
    std::cout << "rank 5 of " << to_string(mesh) << " is at pp " << coordinate[0] << ", dp " << coordinate[1] << ", tp "
              << coordinate[2] << "\nalong tp it talks to " << group.name() << "\n"
              << to_string(flat) << " joins";
    for (const auto& name : names) std::cout << " " << name;
    std::cout << "\n";
  });
}

// try: a mesh of {4, 2} with the names "dp" and "tp". Which ranks does rank 5 talk to along each axis then? And what
// does mesh["cp"] say, of which there is none?
