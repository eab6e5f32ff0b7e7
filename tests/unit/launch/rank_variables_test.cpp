#include "launch/rank_variables.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

namespace sherd {
namespace {

using Environment = std::map<std::string, std::string>;

std::optional<RankVariables> read(const Environment& environment) {
  return read_rank_variables([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Environment& environment) {
  try {
    read(environment);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node7"},
                               {"MASTER_PORT", "4242"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Environment kSlurm = {{"SLURM_PROCID", "3"},          {"SLURM_NTASKS", "8"},
                            {"SLURM_LOCALID", "3"},         {"SLURM_JOB_ID", "41234"},
                            {"SLURM_NTASKS_PER_NODE", "4"}, {"SLURM_STEP_NODELIST", "node[03-04]"}};

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

TEST(RankVariablesTest, NoLauncherIsNoResult) {
  EXPECT_EQ(read({}), std::nullopt);
  EXPECT_EQ(read({{"MASTER_ADDR", "node7"}, {"LOCAL_RANK", "3"}}), std::nullopt);
  EXPECT_EQ(read({{"RANK", ""}, {"WORLD_SIZE", ""}}), std::nullopt);
}

TEST(RankVariablesTest, TorchrunGivesAllSix) {
  EXPECT_EQ(read(kTorchrun), (RankVariables{5, 8, 1, 4, "node7", 4242, "torchrun"}));
}

TEST(RankVariablesTest, TorchrunWinsOverTheOthers) {
  Environment all = kTorchrun;
  all.insert(kOpenMpi.begin(), kOpenMpi.end());
  all.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_EQ(read(all)->source, "torchrun");
}

TEST(RankVariablesTest, WithoutLocalVariablesTheMasterAddressTells) {
  Environment plain = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  EXPECT_EQ(read(plain), (RankVariables{3, 4, 3, 4, "127.0.0.1", 1, "torchrun"}));
  EXPECT_EQ(read(with(plain, "MASTER_ADDR", "node7")), (RankVariables{3, 4, 0, 1, "node7", 1, "torchrun"}));
}

TEST(RankVariablesTest, OneRankNeedsNoMaster) {
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), (RankVariables{0, 1, 0, 1, "", 0, "torchrun"}));
}

TEST(RankVariablesTest, OpenMpiOnOneHostNeedsNoMaster) {
  EXPECT_EQ(read(kOpenMpi), (RankVariables{2, 4, 2, 4, "127.0.0.1", 29500, "open mpi"}));
}

TEST(RankVariablesTest, OpenMpiJobsOfOneHostHaveTheirOwnPorts) {
  const auto first = read(with(kOpenMpi, "PMIX_NAMESPACE", "prterun-host-1234@1"));
  const auto second = read(with(kOpenMpi, "PMIX_NAMESPACE", "prterun-host-1239@1"));
  EXPECT_NE(first->master_port, second->master_port);
  // Connections have ports from 32768 on: one of these may be taken by anybody.
  for (int i = 0; i < 1000; ++i) {
    const int port = read(with(kOpenMpi, "PMIX_NAMESPACE", "prterun-host-" + std::to_string(i)))->master_port;
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 32000);
  }
}

TEST(RankVariablesTest, OpenMpiTakesTheMasterThatIsSet) {
  auto several = with(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"), "OMPI_COMM_WORLD_LOCAL_RANK", "0");
  several["MASTER_ADDR"] = "node1";
  several["MASTER_PORT"] = "77";
  EXPECT_EQ(read(several), (RankVariables{2, 4, 0, 2, "node1", 77, "open mpi"}));
}

TEST(RankVariablesTest, SlurmTakesTheFirstHostAndAPortOfTheJob) {
  EXPECT_EQ(read(kSlurm), (RankVariables{3, 8, 3, 4, "node03", 25234, "slurm"}));
}

TEST(RankVariablesTest, SlurmCountsTheTasksOfThisNode) {
  Environment uneven = {{"SLURM_PROCID", "6"},   {"SLURM_STEP_NUM_TASKS", "7"},
                        {"SLURM_NTASKS", "100"}, {"SLURM_LOCALID", "0"},
                        {"SLURM_NODEID", "3"},   {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                        {"SLURM_JOB_ID", "9"},   {"SLURM_STEP_NODELIST", "n1,n2,n3,n4"}};
  EXPECT_EQ(read(uneven), (RankVariables{6, 7, 0, 1, "n1", 20009, "slurm"}));
}

TEST(RankVariablesTest, ASlurmStepOnOneHostNeedsNoCountPerNode) {
  auto one = with(without(kSlurm, "SLURM_NTASKS_PER_NODE"), "SLURM_STEP_NODELIST", "node9");
  EXPECT_EQ(read(one), (RankVariables{3, 8, 3, 8, "node9", 25234, "slurm"}));
}

TEST(RankVariablesTest, SlurmTakesTheMasterThatIsSet) {
  auto named = with(with(kSlurm, "MASTER_ADDR", "head"), "MASTER_PORT", "5000");
  EXPECT_EQ(read(named), (RankVariables{3, 8, 3, 4, "head", 5000, "slurm"}));
}

TEST(RankVariablesTest, ASlurmBatchScriptIsNoStep) {
  EXPECT_EQ(read(without(kSlurm, "SLURM_STEP_NODELIST")), std::nullopt);
}

TEST(RankVariablesTest, SlurmHostListsGiveTheirFirstHost) {
  EXPECT_EQ(first_slurm_host("node03"), "node03");
  EXPECT_EQ(first_slurm_host("node[03-05,7]"), "node03");
  EXPECT_EQ(first_slurm_host("node[7,03-05]"), "node7");
  EXPECT_EQ(first_slurm_host("login1,node[1-4]"), "login1");
  EXPECT_EQ(first_slurm_host("rack[1-2]-n[3,5].local,x"), "rack1-n3.local");
  EXPECT_EQ(first_slurm_host("a-b-c"), "a-b-c");
  EXPECT_THROW(first_slurm_host("node[1-4"), std::invalid_argument);
  EXPECT_THROW(first_slurm_host(""), std::invalid_argument);
  EXPECT_THROW(first_slurm_host(",a"), std::invalid_argument);
}

TEST(RankVariablesTest, HalfSetVariablesAreNamed) {
  EXPECT_EQ(error_of(without(kTorchrun, "WORLD_SIZE")),
            "init: WORLD_SIZE is not set\n"
            "  set: RANK (torchrun's variables)\n"
            "  help: start the program with `sherd run -n 4 -- ./program`, or unset RANK and WORLD_SIZE");
  EXPECT_EQ(error_of(without(kTorchrun, "RANK")).substr(0, 20), "init: RANK is not se");
  EXPECT_EQ(error_of(without(kTorchrun, "LOCAL_WORLD_SIZE")).substr(0, 32), "init: LOCAL_WORLD_SIZE is not se");
  EXPECT_EQ(error_of(without(kTorchrun, "LOCAL_RANK")).substr(0, 26), "init: LOCAL_RANK is not se");
  EXPECT_EQ(error_of(without(kTorchrun, "MASTER_ADDR")).substr(0, 27), "init: MASTER_ADDR is not se");
  EXPECT_EQ(error_of(without(kTorchrun, "MASTER_PORT")),
            "init: MASTER_PORT is not set\n"
            "  set: RANK and WORLD_SIZE (torchrun's variables)\n"
            "  help: start the program with `sherd run -n 4 -- ./program`, or unset RANK and WORLD_SIZE");
  EXPECT_EQ(error_of(without(kSlurm, "SLURM_LOCALID")),
            "init: SLURM_LOCALID is not set\n"
            "  set: SLURM_PROCID (Slurm's variables)\n"
            "  help: srun --ntasks=8 --ntasks-per-node=4 ./program");
}

TEST(RankVariablesTest, MalformedValuesAreShown) {
  EXPECT_EQ(error_of(with(kTorchrun, "RANK", "two")),
            "init: RANK is not a whole number\n"
            "  RANK: \"two\"\n"
            "  help: start the program with `sherd run -n 4 -- ./program`, or unset RANK and WORLD_SIZE");
  EXPECT_EQ(error_of(with(kTorchrun, "RANK", "8")),
            "init: RANK is out of range\n"
            "  RANK: 8\n"
            "  range: 0 to 7\n"
            "  help: start the program with `sherd run -n 4 -- ./program`, or unset RANK and WORLD_SIZE");
  EXPECT_EQ(error_of(with(kTorchrun, "WORLD_SIZE", "0")),
            "init: WORLD_SIZE is out of range\n"
            "  WORLD_SIZE: 0\n"
            "  range: 1 and up\n"
            "  help: start the program with `sherd run -n 4 -- ./program`, or unset RANK and WORLD_SIZE");
  for (const char* bad : {"1 ", " 1", "1x", "0x1", "-1", "99999999999999999999", "1.0"})
    EXPECT_NE(error_of(with(kTorchrun, "LOCAL_RANK", bad)), "no error") << bad;
  EXPECT_NE(error_of(with(kTorchrun, "LOCAL_WORLD_SIZE", "9")), "no error");
  EXPECT_NE(error_of(with(kTorchrun, "MASTER_PORT", "65536")), "no error");
  EXPECT_NE(error_of(with(kTorchrun, "MASTER_PORT", "0")), "no error");
}

TEST(RankVariablesTest, OpenMpiOnSeveralHostsAsksForTheMaster) {
  EXPECT_EQ(error_of(with(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"), "OMPI_COMM_WORLD_LOCAL_RANK", "0")),
            "init: MASTER_ADDR is not set and the ranks are on several hosts\n"
            "  OMPI_COMM_WORLD_SIZE: 4\n"
            "  OMPI_COMM_WORLD_LOCAL_SIZE: 2\n"
            "  help: mpirun -x MASTER_ADDR=<host of rank 0> -x MASTER_PORT=29500 ./program");
}

TEST(RankVariablesTest, OnlyOpenMpiOnSeveralHostsLacksAnAddress) {
  const auto lacks = [](const Environment& environment) {
    return lacks_address_under_mpi([&](const char* name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  };
  const Environment several = with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  EXPECT_TRUE(lacks(several));
  EXPECT_FALSE(lacks(kOpenMpi));
  EXPECT_FALSE(lacks(with(several, "MASTER_ADDR", "node1")));
  EXPECT_FALSE(lacks(with(several, "RANK", "0")));
  EXPECT_FALSE(lacks(kSlurm));
  EXPECT_FALSE(lacks({}));
}

TEST(RankVariablesTest, SlurmListsThatMissThisNodeAreShown) {
  auto short_list = with(with(kSlurm, "SLURM_STEP_TASKS_PER_NODE", "2(x2)"), "SLURM_NODEID", "2");
  EXPECT_EQ(error_of(short_list),
            "init: SLURM_STEP_TASKS_PER_NODE has no entry for this node\n"
            "  SLURM_STEP_TASKS_PER_NODE: 2(x2)\n"
            "  SLURM_NODEID: 2\n"
            "  help: srun --ntasks=8 --ntasks-per-node=4 ./program");
  EXPECT_NE(error_of(with(short_list, "SLURM_STEP_TASKS_PER_NODE", "2(x")), "no error");
}

}  // namespace
}  // namespace sherd
