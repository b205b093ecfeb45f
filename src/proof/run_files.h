// SPDX-License-Identifier: Apache-2.0
// A run's folder: written once into a fresh place, sealed last. What is checked is a map of paths and bytes, so that
// checks need no disk.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "proof/verdict.h"

namespace trivet::proof {

/// Files of a run: path below its folder, such as "ranks/00003/bounds.bin", and bytes.
using Files = std::map<std::string, std::string>;

/// Path of a rank's file.
std::string RankPath(int64_t rank, const std::string& name);

/// Makes the folder of a run.  Errors: kUsage when there is something already, kIo.
Status MakeRunDir(const std::string& dir);

/// Writes new files below `dir`.  Errors: kIo, also when one is there already.
Status WriteFiles(const std::string& dir, const Files& files);

/// All files below `dir`.  Errors: kNotFound, kIo; kInvalid for what is no regular file.
Result<Files> ReadRunDir(const std::string& dir);

/// Adds seal.json, with the SHA-256 of every other file, and COMPLETE, with that of seal.json.
void Seal(Files* files);

/// Seals the files that are in `dir`.  Errors: those of reading and writing.
Status SealRunDir(const std::string& dir);

/// kIncompleteArtifact for a run without seal or with a file gone, kCorruptArtifact for a changed or additional one.
Gate CheckSeal(const Files& files);

}  // namespace trivet::proof
