// SPDX-License-Identifier: Apache-2.0
// The commands. Each adds its flags to the program and gives back what to run when it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace trivet::cli {

/// How a command ended: an error, or an exit status of its own, which is 0 save for `verify`.
struct Exit {
  Exit(Status ended) : status(std::move(ended)) {}  // NOLINT: a Status is an Exit
  Exit(Error error) : status(std::move(error)) {}   // NOLINT: an Error is an Exit
  Exit(int found) : verdict(found) {}               // NOLINT: a verdict is an Exit

  Status status;
  int verdict = 0;
};

/// Runs a command; an error is printed as one line and becomes the exit status.
using Run = std::function<Exit()>;

/// Prints a model's layout from config and headers alone.
Run AddPlan(CLI::App* app);
/// Prints what a checkpoint is, and every defect found in it.
Run AddInspect(CLI::App* app);
/// Continues prompts, streaming.
Run AddGenerate(CLI::App* app);
/// Answers over HTTP.
Run AddServe(CLI::App* app);
/// Writes the logits of given tokens.
Run AddScore(CLI::App* app);
/// Text to token ids and back, and chats to text.
Run AddTokenize(CLI::App* app);
/// Makes, shows, compares and checks maps of experts.
Run AddPlacement(CLI::App* app);
/// Judges recorded runs.
Run AddVerify(CLI::App* app);
/// Computes the tokens of a recorded run once more.
Run AddReplay(CLI::App* app);
/// Writes the routing of a recorded run for others.
Run AddRoutes(CLI::App* app);
/// Says which ranks a recorded layout makes hold what.
Run AddLayout(CLI::App* app);
/// Writes a padded checkpoint.
Run AddPad(CLI::App* app);
/// Writes a quantised checkpoint.
Run AddQuantize(CLI::App* app);
/// Measures decode and prefill.
Run AddBench(CLI::App* app);
/// Measures where the forms of a sum over ranks cross, and keeps it.
Run AddTune(CLI::App* app);
/// Says which way and which rows are taken, and why the others are not.
Run AddExplain(CLI::App* app);
/// Shows the machine, the kernel rows and what was chosen.
Run AddDoctor(CLI::App* app);

}  // namespace trivet::cli
