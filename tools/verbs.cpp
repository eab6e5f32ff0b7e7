// The table of verbs.

#include "verb.h"

namespace sherd::tools {

const std::vector<VerbGroup>& verb_groups() {
  // clang-format off
  static const std::vector<VerbGroup> groups = {
      {"look at checkpoints", {
          {"inspect",   "CKPT [--filter NAME]",              "list tensors, sizes, chunks, files and objects",    inspect},
          {"cat",       "CKPT NAME [SLICE]",                 "print the values of a tensor or an object",         cat},
          {"verify",    "CKPT",                              "read every byte, compare digests, look for holes",  verify},
          {"diff",      "CKPT CKPT",                         "compare two checkpoints tensor by tensor",          diff},
          {"extract",   "CKPT NAME [SLICE] -o FILE",         "write a tensor, or a part of it, as .npy",          extract},
          {"view",      "CKPT --html FILE",                  "draw a whole checkpoint as a page",                 view},
      }},
      {"write checkpoints anew", {
          {"convert",   "CKPT TO",                           "write it in another format",                      convert},
          {"reshard",   "CKPT TO --ranks N",                 "write it as other ranks would have",              reshard},
          {"merge",     "CKPT CKPT... TO",                   "write several as one",                            merge},
          {"rename",    "CKPT TO OLD=NEW...",                "write it with other names",                       rename},
          {"repair",    "CKPT TO",                           "write what is whole in a damaged one",            repair},
      }},
      {"directories of checkpoints", {
          {"ls",        "[DIR]",                             "list checkpoints: step, size, time, state, base",   ls},
          {"gc",        "DIR --keep-last N",                 "remove old checkpoints and drafts left behind",     gc},
      }},
      {"ranks and layouts", {
          {"run",       "-n RANKS -- PROGRAM [ARGUMENT...]", "start the ranks of a program as processes",       run},
          {"layout",    "TENSOR --mesh MESH",                "show which part of a tensor each rank holds",     layout},
          {"calibrate", "-n RANKS",                          "measure what communication costs here",           calibrate},
          {"explain",   "OPERATOR TENSOR... --mesh MESH",    "show how an operator is sharded, and what moves", explain},
          {"xla",       "TENSOR --mesh MESH",                "write a layout as XLA does, or read XLA's",      xla},
      }},
      {"the command itself", {
          {"completion", "bash|zsh|fish",                    "print what a shell needs to complete words",        completion},
          {"man",       "",                                  "print the manual page",                             man},
      }},
  };
  // clang-format on
  return groups;
}

}  // namespace sherd::tools
