# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Builds the tree that it lies in: conan create packaging/conan. Options are those of CMakeLists.txt, words with
commas between them."""
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.gnu import PkgConfigDeps


class Qobs(ConanFile):
    name = "qobs"
    license = "Apache-2.0"
    description = "Quantization scales, zero points and codes on CPUs"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "isa": ["ANY"], "families": ["ANY"], "features": ["ANY"],
               "sleef": [True, False], "checkpoint": [True, False]}
    default_options = {"shared": False, "fPIC": True, "isa": "all", "families": "all", "features": "all",
                       "sleef": False,
                       "checkpoint": False}
    package_type = "library"
    implements = ["auto_shared_fpic"]
    languages = "C"

    @property
    def _tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        self.version = re.search(r"version: '(.*)'", load(self, os.path.join(self._tree, "meson.build")))[1]

    def export_sources(self):
        for pattern in ["CMakeLists.txt", "meson.build", "LICENSE", "include/*", "src/*", "checkpoint/*",
                        "packaging/*.in",
                        "packaging/*.sh"]:
            copy(self, pattern, self._tree, self.export_sources_folder)

    def requirements(self):
        if self.options.checkpoint:
            for package in ["json-c/[>=0.15]", "pcre2/[>=10.30]", "libyaml/[>=0.2]"]:
                self.requires(package)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        if self.options.checkpoint:
            PkgConfigDeps(self).generate()
        toolchain = CMakeToolchain(self)
        for option in ["isa", "families", "features"]:
            words = str(self.options.get_safe(option))
            if words != "all":
                toolchain.cache_variables["QOBS_" + option.upper()] = words.replace(",", ";")
        toolchain.cache_variables["QOBS_CHECKPOINT"] = "ON" if self.options.checkpoint else "OFF"
        toolchain.cache_variables["QOBS_SLEEF"] = "ON" if self.options.sleef else "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        core = self.cpp_info.components["core"]
        core.libs = ["qobs"]
        core.set_property("cmake_target_name", "qobs::qobs")
        if self.settings.os != "Windows":
            core.system_libs = ["m"] + (["sleef"] if self.options.sleef else [])
        if self.options.checkpoint:
            models = self.cpp_info.components["checkpoint"]
            models.libs = ["qobs-checkpoint"]
            models.set_property("cmake_target_name", "qobs::checkpoint")
            models.requires = ["core", "json-c::json-c", "pcre2::pcre2", "libyaml::libyaml"]
            models.system_libs = ["m", "pthread"]
