// train_resnet: trains a small ResNet on the ranks that a launcher starts, saves checkpoints, and goes on where it
// stopped. `train_resnet --help` lists what can be changed. The loop is train/program.cpp.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "image_task.h"
#include "train/program.h"

namespace {

class ResNetProgram : public Program {
 public:
  std::string name() const override { return "train_resnet"; }
  std::string about() const override { return "Trains a small ResNet to tell the directions of waves in pictures"; }
  std::string rows_word() const override { return "images"; }
  std::string counted_word() const override { return "images"; }
  std::string model_text() const override { return fmt::format("a ResNet-{}", 6 * model_.blocks + 2); }
  std::string batch_text(const Settings& settings) const override {
    return fmt::format("{} images of {} x {}", settings.batch, images_.size, images_.size);
  }
  int64_t counted(const Settings& settings) const override { return settings.batch; }

  Settings defaults() const override { return {.batch = 32, .out = "runs/resnet"}; }
  void add_options(CLI::App& app) override {
    const auto positive = CLI::Range(1.0, 1e15);
    app.add_option("--blocks", model_.blocks, "in each of three stages: 6 n + 2 layers (1)")->check(positive);
    app.add_option("--width", model_.width, "channels of the first stage (16)")->check(positive);
    app.add_option("--classes", model_.classes, "of images (10)")->check(positive);
    app.add_option("--size", images_.size, "of an image, in pixels (32)")->check(positive);
    app.add_option("--noise", images_.noise, "in the images, beside waves of height 1 (0.5)")
        ->check(CLI::Range(0.0, 1e3));
  }
  void prepare(const Settings& settings) override {
    images_.classes = model_.classes;
    images_.dtype = type_of(settings);
    // Used in bfloat16, weights meet images of it.
    if (settings.dtype == "bfloat16") images_.dtype = at::kBFloat16;
  }
  nlohmann::ordered_json options() const override {
    return {{"blocks", model_.blocks},
            {"width", model_.width},
            {"classes", model_.classes},
            {"size", images_.size},
            {"noise", images_.noise}};
  }
  std::vector<std::string> architecture() const override { return {"blocks", "width", "classes"}; }
  size_t fingerprint() const override { return 0; }  // the images follow from the settings

  std::shared_ptr<Task> make_task(const Settings& settings) override {
    return std::make_shared<ImageTask>(make_resnet(model_, type_of(settings), settings.seed), settings.batch,
                                       settings.seed, images_);
  }

 private:
  static at::ScalarType type_of(const Settings& settings) {
    return settings.dtype == "float64" ? at::kDouble : at::kFloat;
  }

  ResNetConfig model_;
  ImageOptions images_;
};

}  // namespace

int main(int argc, char** argv) {
  ResNetProgram program;
  return run_program(program, argc, argv);
}
