// Which format a path is of, and what is said where it is none.

#include <gtest/gtest.h>

#include <filesystem>

#include "format/archive.h"
#include "format/safetensors.h"
#include "unit/stored/stored_files.h"

namespace sherd::stored {
namespace {

using test::put;

std::string empty_safetensors() {
  format::SafetensorsFile file;
  return lay_out_safetensors(file);
}

class OpenCheckpointTest : public ::testing::Test {
 protected:
  std::string refused(const std::string& path) {
    return test::refusal([&] { open_checkpoint(storage_, path); });
  }
  std::shared_ptr<Storage> storage_ = memory_storage();
};

TEST_F(OpenCheckpointTest, NothingThere) {
  EXPECT_EQ(refused("runs/1"),
            "load: there is no checkpoint at this path\n  path: runs/1\n"
            "  looked for: .metadata, __0.metadata, *.safetensors, or a file of torch.save or safetensors\n"
            "  found: nothing\n  help: the path that was given to save");
}

TEST_F(OpenCheckpointTest, AFolderOfOtherThings) {
  put(*storage_, "runs/1", {{"notes.txt", "x"}, {"pytorch_model.bin", "y"}});
  EXPECT_EQ(refused("runs/1"),
            "load: there is no checkpoint at this path\n  path: runs/1\n"
            "  looked for: .metadata, __0.metadata, *.safetensors, or a file of torch.save or safetensors\n"
            "  found: notes.txt, pytorch_model.bin\n  help: the path that was given to save");
}

TEST_F(OpenCheckpointTest, AnEmptyFolderOfTheDisk) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "open-checkpoint-empty";
  std::filesystem::create_directories(folder);
  storage_ = disk_storage();
  EXPECT_EQ(refused(folder.string()),
            "load: there is no checkpoint at this path\n  path: " + folder.string() +
                "\n  looked for: .metadata, __0.metadata, *.safetensors, or a file of torch.save or safetensors\n"
                "  found: nothing\n  help: the path that was given to save");
  std::filesystem::remove(folder);
}

TEST_F(OpenCheckpointTest, AFileOfAnotherFormat) {
  put(*storage_, "m.safetensors", std::string("\x93NUMPY and so on"));
  EXPECT_EQ(refused("m.safetensors"),
            "load: the file is of no format that is known\n  file: m.safetensors\n"
            "  looked for: an archive of torch.save or torch::save, a safetensors file\n"
            "  begins with: 93 4e 55 4d 50 59 20 61\n"
            "  help: a file of one of these formats, or the folder of a distributed checkpoint");
  put(*storage_, "empty.pt", std::string());
  EXPECT_EQ(refused("empty.pt"),
            "load: the file is of no format that is known\n  file: empty.pt\n"
            "  looked for: an archive of torch.save or torch::save, a safetensors file\n  begins with: nothing\n"
            "  help: a file of one of these formats, or the folder of a distributed checkpoint");
}

TEST_F(OpenCheckpointTest, AFolderOfTwoFormats) {
  put(*storage_, "both", {{".metadata", "x"}, {"model.safetensors", empty_safetensors()}});
  EXPECT_EQ(refused("both"),
            "load: the folder holds checkpoints of two formats\n  path: both\n  found: .metadata, model.safetensors\n"
            "  help: the path of a safetensors file, or a folder of one checkpoint alone");
  EXPECT_EQ(refused("both/model.safetensors"), "nothing");
}

TEST_F(OpenCheckpointTest, TheBytesDecide) {
  put(*storage_, "a.safetensors", format::archive_of(format::Dict{}));
  EXPECT_STREQ(open_checkpoint(storage_, "a.safetensors")->format(), "torch.save");
  put(*storage_, "a.pt", empty_safetensors());
  EXPECT_STREQ(open_checkpoint(storage_, "a.pt")->format(), "safetensors");
}

}  // namespace
}  // namespace sherd::stored
