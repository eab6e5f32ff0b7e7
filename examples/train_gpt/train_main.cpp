// train_gpt: trains a small GPT on the ranks that a launcher starts, saves checkpoints, and goes on where it stopped.
// `train_gpt --help` lists what can be changed; docs/training.md shows it at work. The loop is train/program.cpp.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "sherd/error.h"
#include "train.h"
#include "train/program.h"

namespace {

using sherd::ErrorText;

class GptProgram : public Program {
 public:
  std::string name() const override { return "train_gpt"; }
  std::string about() const override { return "Trains a small GPT on the characters of a text"; }
  std::string rows_word() const override { return "sequences"; }
  std::string counted_word() const override { return "tokens"; }
  std::string model_text() const override { return is_rotary() ? "a rotary GPT" : "a GPT"; }
  std::string batch_text(const Settings& settings) const override {
    return fmt::format("{} sequences of {} characters", settings.batch, length_);
  }
  int64_t counted(const Settings& settings) const override { return settings.batch * length_; }

  void add_options(CLI::App& app) override {
    const auto positive = CLI::Range(1.0, 1e15);
    app.add_option("--model", model_, "gpt, or rotary: rotary positions, grouped queries, a gated MLP (gpt)")
        ->check(CLI::IsMember({"gpt", "rotary"}));
    app.add_option("--layers", layers_, "blocks of the model (4)")->check(positive);
    app.add_option("--width", width_, "of the model (128)")->check(positive);
    app.add_option("--heads", heads_, "of the attention (4)")->check(positive);
    app.add_option("--kv-heads", kv_heads_, "of keys and values, where the model is rotary; 0: half of --heads (0)")
        ->check(CLI::Range(0.0, 1e15));
    app.add_option("--length", length_, "of a sequence (64)")->check(positive);
    app.add_option("--dropout", dropout_, "probability (0)")->check(CLI::Range(0.0, 0.99));
    app.add_option("--text", text_file_, "a file to learn (a story that is built in)");
  }

  void prepare(const Settings&) override {
    text_ = read_text();
    corpus_.emplace(text_);
    if (kv_heads_ == 0) kv_heads_ = std::max<int64_t>(1, heads_ / 2);
    if (width_ % heads_ != 0) {
      refuse(ErrorText(name(), "the heads do not divide the width")
                 .fact("width", fmt::format("{}", width_))
                 .fact("heads", fmt::format("{}", heads_))
                 .help(fmt::format("--width {}", (width_ / heads_ + 1) * heads_)));
    }
    if (is_rotary() && heads_ % kv_heads_ != 0) {
      refuse(ErrorText(name(), "the heads of keys and values do not divide those of queries")
                 .fact("heads", fmt::format("{}", heads_))
                 .fact("kv heads", fmt::format("{}", kv_heads_))
                 .help("--kv-heads 1"));
    }
    if (is_rotary() && width_ / heads_ % 2 != 0) {
      refuse(ErrorText(name(), "rotary positions turn pairs, and a head has an odd number of elements")
                 .fact("width / heads", fmt::format("{}", width_ / heads_))
                 .help(fmt::format("--width {}", (width_ / heads_ + 1) * heads_)));
    }
    if (corpus_->size() <= length_) {
      refuse(ErrorText(name(), "the text is shorter than a sequence and the character after it")
                 .fact("text", fmt::format("{} characters", corpus_->size()))
                 .fact("length", fmt::format("{}", length_))
                 .help("--length 16, or a longer --text"));
    }
  }

  nlohmann::ordered_json options() const override {
    return {{"model", model_},       {"layers", layers_}, {"width", width_},     {"heads", heads_},
            {"kv_heads", kv_heads_}, {"length", length_}, {"dropout", dropout_}, {"text", text_file_}};
  }
  std::vector<std::string> architecture() const override {
    if (is_rotary()) return {"model", "layers", "width", "heads", "kv_heads", "length"};
    return {"model", "layers", "width", "heads", "length"};
  }
  size_t fingerprint() const override { return std::hash<std::string>()(text_); }

  std::shared_ptr<Task> make_task(const Settings& settings) override {
    const auto dtype = settings.dtype == "float64" ? at::kDouble : at::kFloat;
    const Rows rows{.batch = settings.batch, .length = length_, .seed = settings.seed};
    if (is_rotary()) {
      const RotaryGptConfig config{.vocabulary = corpus_->vocabulary(),
                                   .layers = layers_,
                                   .width = width_,
                                   .heads = heads_,
                                   .kv_heads = kv_heads_,
                                   .hidden = (width_ * 8 / 3 + 7) / 8 * 8,
                                   .length = length_,
                                   .dropout = dropout_};
      return std::make_shared<TextTask<RotaryGpt>>(make_model(config, dtype, settings.seed), *corpus_, rows);
    }
    const GptConfig config{.vocabulary = corpus_->vocabulary(),
                           .layers = layers_,
                           .width = width_,
                           .heads = heads_,
                           .length = length_,
                           .dropout = dropout_};
    const TrainOptions options{.model = config, .dtype = dtype, .seed = settings.seed};
    return std::make_shared<TextTask<Gpt>>(make_model(options), *corpus_, rows);
  }

 private:
  [[noreturn]] static void refuse(const ErrorText& text) { throw std::invalid_argument(text.str()); }
  bool is_rotary() const { return model_ == "rotary"; }

  std::string read_text() const {
    if (text_file_.empty()) return std::string(kText);
    std::ifstream file(text_file_, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!text.empty()) return text;
    refuse(ErrorText(name(), "the text cannot be read, or is empty")
               .fact("--text", text_file_)
               .help("the path of a text file, or none for the story that is built in"));
  }

  std::string model_ = "gpt";
  int64_t layers_ = 4, width_ = 128, heads_ = 4, kv_heads_ = 0, length_ = 64;
  double dropout_ = 0;
  std::string text_file_;
  std::string text_;
  std::optional<Corpus> corpus_;
};

}  // namespace

int main(int argc, char** argv) {
  GptProgram program;
  return run_program(program, argc, argv);
}
