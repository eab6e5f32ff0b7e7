// Traces: valid, with lanes for each rank, and every event inside the step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "property/train_alike.h"
#include "sherd/sherd.h"

namespace sherd::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string temporary_file(const char* name) {
  return ::testing::TempDir() + "sherd_trace_" + std::to_string(getpid()) + "_" + name;
}

// What Chrome and Perfetto ask of an event.
void check_event(const Json& event) {
  ASSERT_TRUE(event.is_object());
  ASSERT_TRUE(event.at("name").is_string());
  ASSERT_TRUE(event.at("pid").is_number_integer());
  ASSERT_TRUE(event.at("tid").is_number_integer());
  if (event.at("ph") == "M") {
    ASSERT_TRUE(event.at("args").is_object());
    return;
  }
  ASSERT_EQ(event.at("ph"), "X") << event;
  EXPECT_GE(event.at("ts").get<double>(), 0) << event;
  EXPECT_GE(event.at("dur").get<double>(), 0) << event;
}

// Events of a lane lie one after the other or one in the other.
void check_lane(const std::vector<std::pair<double, double>>& events) {
  std::vector<double> ends;
  for (const auto& [start, end] : events) {
    while (!ends.empty() && ends.back() <= start + 0.0011) ends.pop_back();  // times are written in nanoseconds
    if (!ends.empty()) {
      EXPECT_LE(end, ends.back() + 0.0011);
    }
    ends.push_back(end);
  }
}

void check_trace(const Json& trace, size_t ranks, double longest_us) {
  std::set<int64_t> processes;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<double, double>>> lanes;
  std::set<std::string> names;
  for (const Json& event : trace.at("traceEvents")) {
    check_event(event);
    processes.insert(event.at("pid").get<int64_t>());
    if (event.at("name") == "thread_name") names.insert(event.at("args").at("name").get<std::string>());
    if (event.at("ph") != "X") continue;
    const double start = event.at("ts").get<double>();
    const double end = start + event.at("dur").get<double>();
    EXPECT_LE(end, longest_us) << event;
    lanes[{event.at("pid").get<int64_t>(), event.at("tid").get<int64_t>()}].emplace_back(start, end);
    EXPECT_TRUE(event.at("tid") != 0 && event.at("tid") != event.at("pid"))
        << "Perfetto draws it in the main thread's lane";
  }
  EXPECT_EQ(processes.size(), ranks);
  EXPECT_TRUE(names.count("compute") == 1 && names.count("communication") == 1);
  for (const auto& [lane, events] : lanes) check_lane(events);
}

TEST(CommTraceTest, AStepOfTwoAxesHasLanesForEachRank) {
  const auto begun = std::chrono::steady_clock::now();
  std::vector<std::string> traces(4);
  spawn(4, [&](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    auto model = made([] { return nn::Sequential(nn::Linear(6, 8), nn::GELU(), nn::Linear(8, 6)); });
    parallelize_module(*model, mesh["tp"], {{"0", ColwiseParallel()}, {"2", RowwiseParallel()}});
    fully_shard(model, mesh["dp"]);
    const Tensor x = distribute_tensor(numbers({4, 6}), mesh["dp"], {Shard(0)});
    CommDebugMode debug(*model, {.operators = true});
    model->forward(x).sum().backward();
    const size_t records = debug.records().size();
    const size_t operators = debug.operators().size();
    traces[static_cast<size_t>(world.rank())] = gather_traces(debug, world.group());
    EXPECT_EQ(debug.records().size(), records) << "a trace is no part of what it shows";
    EXPECT_EQ(debug.operators().size(), operators);
    EXPECT_GT(operators, 10u);
    check_trace(Json::parse(trace_json(debug)), 1, 1e9);
  });
  const double longest = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
  for (const std::string& trace : traces) EXPECT_EQ(trace, traces[0]);
  const Json trace = Json::parse(traces[0]);
  check_trace(trace, 4, longest);
  std::set<std::string> shown;
  std::map<int64_t, int64_t> background;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    shown.insert(event["name"].get<std::string>());
    if (event["cat"] == "communication") {
      EXPECT_GE(event["args"]["bytes"].get<int64_t>(), 0);
      if (event["tid"].get<int64_t>() % 100 == 2) ++background[event["pid"].get<int64_t>()];
    }
  }
  EXPECT_TRUE(shown.count("all_gather dp") == 1) << traces[0];
  EXPECT_TRUE(shown.count("all_reduce tp") == 1);
  EXPECT_TRUE(shown.count("aten::addmm") == 1);
  EXPECT_EQ(background.size(), 4u) << "gathers and buckets have a lane of their own";
}

TEST(CommTraceTest, ATraceOfNothingIsATrace) {
  spawn(2, [](World& world) {
    const CommDebugMode debug;
    check_trace(Json::parse(trace_json(debug)), 1, 0);
    check_trace(Json::parse(gather_traces(debug, world.group())), 2, 0);
    check_trace(Json::parse(gather_traces(debug, init_device_mesh("cpu", {2}, {"dp"}))), 2, 0);
  });
}

TEST(CommTraceTest, NamesAreQuoted) {
  spawn(2, [](World&) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Shard(0)});
    const CommDebugMode debug({{"a\"b\\c\n.weight", x}});
    const NamedScope scope("tab\t\"quoted\"");
    full_tensor(x);
    const Json trace = Json::parse(trace_json(debug));
    EXPECT_EQ(trace["traceEvents"].back()["args"]["scope"], "tab\t\"quoted\"");
    EXPECT_EQ(Json::parse(to_json(debug))["records"][0]["module"], "a\"b\\c\n");
  });
}

TEST(CommTraceTest, FilesAreWrittenByTheFirstRank) {
  const std::string path = temporary_file("all.json");
  spawn(2, [&](World& world) {
    const DeviceMesh tp = init_device_mesh("cpu", {2}, {"tp"});
    const Tensor x = distribute_tensor(numbers({4, 6}), tp, {Shard(0)});
    const CommDebugMode debug;
    full_tensor(x);
    save_trace(debug, path, world.group());
    const std::string own = temporary_file(world.rank() == 0 ? "0.json" : "1.json");
    save_trace(debug, own);
    std::ifstream file(own);
    check_trace(Json::parse(file), 1, 1e9);
    std::remove(own.c_str());
  });
  std::ifstream file(path);
  check_trace(Json::parse(file), 2, 1e9);
  std::remove(path.c_str());
}

TEST(CommTraceTest, AFileThatCannotBeWrittenIsAnErrorOnEveryRank) {
  const std::string path = temporary_file("no/such/folder.json");
  const CommDebugMode alone;
  try {
    save_trace(alone, path);
    FAIL();
  } catch (const c10::ValueError& error) {
    EXPECT_EQ(std::string(error.what_without_backtrace()),
              "save_trace: the file cannot be written\n  file: " + path +
                  "\n  why: No such file or directory\n"
                  "  help: a path in a folder that exists: save_trace(debug, \"trace.json\")");
  }
  std::atomic<int> threw = 0;
  spawn(2, [&](World& world) {
    const CommDebugMode debug;
    try {
      save_trace(debug, path, world.group());
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what(), HasSubstr("No such file or directory"));
      ++threw;
    }
  });
  EXPECT_EQ(threw, 2);
}

}  // namespace
}  // namespace sherd::testing
