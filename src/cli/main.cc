// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/options.h"

namespace {

struct Command {
  const char* name;
  const char* summary;
  trivet::cli::Run (*add)(CLI::App* app);
};

// The commands, in the order of --help.
constexpr Command kCommands[] = {
    {"plan", "how a model is cut over ranks, from config and headers alone", trivet::cli::AddPlan},
    {"inspect", "geometry, tensors, tokenizer and template of a model, and every defect", trivet::cli::AddInspect},
    {"generate", "continue prompts, streaming; or chat", trivet::cli::AddGenerate},
    {"serve", "an HTTP server with OpenAI's API", trivet::cli::AddServe},
    {"score", "logits, log-probabilities and perplexity of given tokens", trivet::cli::AddScore},
    {"tokenize", "text to token ids and back, chats to text", trivet::cli::AddTokenize},
    {"placement", "maps that say which expert lives where: make, show, diff, check", trivet::cli::AddPlacement},
    {"verify", "judge recorded runs, and name the first thing in which they differ", trivet::cli::AddVerify},
    {"replay", "compute the tokens of a recorded run under another layout, and record that", trivet::cli::AddReplay},
    {"routes", "the routing of a recorded run, for others", trivet::cli::AddRoutes},
    {"layout", "who must have recorded what in a run", trivet::cli::AddLayout},
    {"pad", "write a checkpoint whose axes divide by a rank count, for other engines", trivet::cli::AddPad},
    {"quantize", "write a checkpoint with its large matrices in FP8 or MXFP4", trivet::cli::AddQuantize},
    {"bench", "measure decode and prefill, interleaved", trivet::cli::AddBench},
    {"tune", "measure where sums over ranks change form, and keep it for later runs", trivet::cli::AddTune},
    {"explain", "which way and which kernel rows a sum or a family takes, and why not the others",
     trivet::cli::AddExplain},
    {"doctor", "the machine, the kernel rows, and which would run", trivet::cli::AddDoctor},
};

// One line on standard error, and the code's exit status.
int Fail(const trivet::Error& error) {
  std::fprintf(stderr, "trivet: %s\n", error.message.c_str());
  return trivet::ExitStatus(error.code);
}

// A closed standard stream would give its number to the next file that is opened. Standard input becomes empty,
// standard error goes nowhere, and standard output refuses what is written, so that a lost answer is an error.
void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

// What was printed must have arrived.
trivet::Status FlushOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return trivet::MakeError(trivet::Code::kIo, std::string("standard output: expected to write, found: ") +
                                                  (errno == 0 ? "an earlier error" : std::strerror(errno)) +
                                                  "; the output is incomplete");
}

// The library reads an empty text as the number 0, a number beyond its type as another one, tells of what is no number
// in words of its own, and shows empty lists as defaults.
void Tidy(CLI::App* app) {
  for (CLI::App* nested : app->get_subcommands({})) Tidy(nested);
  for (CLI::Option* option : app->get_options()) {
    if (option->get_default_str() == "[]") option->default_str("");
    const std::string type = option->get_type_name();
    if (type == "INT" || type == "FLOAT") trivet::cli::RefuseNoNumber(option);
  }
}

// The library keeps the last of several values of an option that has one; the others would be lost without a word.
trivet::Status CheckGivenOnce(const CLI::App& app) {
  for (const CLI::App* nested : app.get_subcommands()) TRY(CheckGivenOnce(*nested));
  for (const CLI::Option* option : app.get_options()) {
    const bool flag = option->get_expected_max() == 0;
    if (flag || option->count() < 2 || option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) continue;
    return trivet::MakeError(
        trivet::Code::kUsage,
        fmt::format("{}: expected one value, found {}, of which the last is \"{}\"; give the option once",
                    option->get_name(), option->count(), trivet::Quote(option->results().back())));
  }
  return {};
}

// Arguments of which "--name=", an empty value, is two: the library takes the next argument for the value.
std::vector<const char*> SplitEmpty(int argc, char** argv, std::vector<std::string>* names) {
  names->reserve(static_cast<size_t>(argc));
  std::vector<const char*> arguments;
  bool options = true;  // none behind "--"
  for (int i = 0; i < argc; ++i) {
    const std::string_view text = argv[i];
    options = options && text != "--";
    if (options && text.starts_with("--") && text.find('=') + 1 == text.size()) {
      arguments.push_back(names->emplace_back(text.substr(0, text.size() - 1)).c_str());
      arguments.push_back("");
    } else {
      arguments.push_back(argv[i]);
    }
  }
  return arguments;
}

int Main(int argc, char** argv) {
  CLI::App app{"Trivet: one language model on any number of ranks, bit for bit as on one."};
  app.set_version_flag("--version", "trivet " TRIVET_VERSION);
  app.require_subcommand(1);
  app.option_defaults()->take_last();
  app.get_formatter()->column_width(40);
  std::vector<std::pair<CLI::App*, trivet::cli::Run>> runs;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->option_defaults()->take_last()->always_capture_default();
    runs.emplace_back(sub, command.add(sub));
    Tidy(sub);
  }
  try {
    std::vector<std::string> names;
    const std::vector<const char*> arguments = SplitEmpty(argc, argv, &names);
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);
      const trivet::Status flushed = FlushOutput();
      return flushed.ok() ? 0 : Fail(flushed.error());
    }
    return Fail(trivet::MakeError(trivet::Code::kUsage, std::string(error.what()) + "; see trivet --help"));
  }
  if (const trivet::Status once = CheckGivenOnce(app); !once.ok()) return Fail(once.error());
  int verdict = 0;
  for (const auto& [sub, run] : runs) {
    if (!sub->parsed()) continue;
    const trivet::cli::Exit ended = run();
    if (!ended.status.ok()) return Fail(ended.status.error());
    verdict = ended.verdict;
  }
  const trivet::Status flushed = FlushOutput();
  return flushed.ok() ? verdict : Fail(flushed.error());
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardStreams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the size limit is a write error with a message
  try {
    return Main(argc, argv);
  } catch (const std::bad_alloc&) {
    return Fail(trivet::MakeError(trivet::Code::kCapacity,
                                  "memory: expected enough to go on, found none; use more ranks, "
                                  "fewer sequences or a shorter context"));
  } catch (const std::exception& error) {  // a library's: ours throw nothing
    return Fail(trivet::MakeError(trivet::Code::kIo, error.what()));
  }
}
