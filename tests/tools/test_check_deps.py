# SPDX-License-Identifier: Apache-2.0
"""check_deps.py accepts a good tree and names each kind of violation."""

import tree

import check_deps  # from tools/, which tree puts on the path

CMAKE = """
function(eng_module name)
endfunction()
eng_module(base LIBS fmt::fmt)
eng_module(device DEPS base)  # eng_module(base DEPS kernels)
eng_module(kernels DEPS base device LIBS PkgConfig::HWY)
add_executable(trivet main.cc)
target_link_libraries(trivet PRIVATE base kernels CLI11::CLI11)
"""


class CheckDepsTest(tree.TreeTest):
    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", CMAKE)
        self.write("src/base/a.h", "#include <string>\n")
        self.write("src/device/d.h", '#include "base/a.h"\n')
        self.write("src/kernels/k.cc", '#include "base/a.h"\n#include "device/d.h"\n#include <hwy/highway.h>\n')
        self.write("src/cli/main.cc", '#include <CLI/CLI.hpp>\n#include "base/a.h"\n')

    def problems(self):
        return check_deps.check(self.root)[0]

    def test_good_tree_passes(self):
        self.assertEqual(self.problems(), [])

    def test_include_of_a_module_that_is_no_dependency(self):
        self.write("src/base/b.cc", '#include "base/a.h"\n\n#include "kernels/k.h"\n')
        self.write("src/kernels/k.h", "")
        self.assert_reported(self.problems(), "src/base/b.cc:3", "base includes kernels/k.h")

    def test_dependencies_of_a_dependency_do_not_count(self):
        self.write("CMakeLists.txt", CMAKE.replace("kernels DEPS base device", "kernels DEPS device"))
        self.assert_reported(self.problems(), "src/kernels/k.cc:1", "base")

    def test_the_program_includes_only_what_it_links(self):
        self.write("src/cli/run.cc", '#include "device/d.h"\n')
        self.assert_reported(self.problems(), "src/cli/run.cc:1", "device")

    def test_dependency_that_no_file_uses(self):
        self.write("src/device/d.h", "")
        self.assert_reported(self.problems(), "eng_module(device)", "base")

    def test_cycle(self):
        self.write("CMakeLists.txt", CMAKE.replace("base LIBS", "base DEPS kernels LIBS"))
        self.write("src/base/c.h", '#include "kernels/k.h"\n')
        self.write("src/kernels/k.h", "")
        self.assert_reported(self.problems(), "cycle", "base -> kernels -> base")

    def test_unknown_dependency(self):
        self.write("CMakeLists.txt", CMAKE + "eng_module(empty DEPS nowhere)\n")
        self.assert_reported(self.problems(), "nowhere")

    def test_folder_without_module(self):
        self.write("src/extra/x.h", "")
        self.assert_reported(self.problems(), "src/extra")

    def test_missing_header_and_header_without_module(self):
        self.write("src/base/b.cc", '#include "base/gone.h"\n')
        self.assert_reported(self.problems(), "base/gone.h does not exist")
        self.write("src/base/b.cc", '#include "a.h"\n')
        self.assert_reported(self.problems(), '"a.h" names no module')
        self.write("src/base/b.cc", "#include <base/a.h>\n")
        self.assert_reported(self.problems(), "<base/a.h>")

    def test_commented_include_does_not_count(self):
        self.write("src/base/b.cc", '// #include "kernels/k.h"\n/*\n#include "kernels/k.h"\n*/\n')
        self.assertEqual(self.problems(), [])

    def test_cuda_headers_have_their_homes(self):
        for name in ("src/kernels/k.cu", "src/kernels/k.cuh", "src/device/cuda_memory.cc"):
            self.write(name, "#include <cuda_runtime.h>\n")
        self.assertEqual(self.problems(), [])
        self.write("src/kernels/l.cc", "#include <cuda_runtime.h>\n")
        self.assert_reported(self.problems(), "src/kernels/l.cc:1", "CUDA")

    def test_libraries_have_their_homes(self):
        self.write("src/base/b.cc", "#include <hwy/highway.h>\n")
        self.assert_reported(self.problems(), "src/base/b.cc:1", "hwy/highway.h")

    def test_environment_has_its_home(self):
        self.write("src/base/env.cc", 'const char* Home() { return std::getenv("HOME"); }\n')
        self.write("src/base/b.cc", 'const char* kText = "getenv";  // getenv\n')
        self.assertEqual(self.problems(), [])
        self.write("src/base/b.cc", '\nconst char* Home() { return getenv("HOME"); }\n')
        self.assert_reported(self.problems(), "src/base/b.cc:2", "environment")
