#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""Writes the bill of materials of a release, in CycloneDX's JSON: its files, and the libraries of others in its wheels.

    bill.py VERSION FILE...     the files of a release; needs cyclonedx-python-lib[json-validation] and Debian's dpkg

A library in a wheel is that of the Debian package that has a file of its name. The bill goes to standard output.
"""
import os
import re
import subprocess
import sys
import zipfile

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

LICENSES = {"libjson-c": "MIT", "libpcre2-8": "BSD-3-Clause", "libsleef": "BSL-1.0", "libyaml-0": "MIT"}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LIBRARY = re.compile(r"libqobs\.libs/(.*)-[0-9a-f]{8}(\.so.*)")  # auditwheel puts a hash into the name


def libraries(wheel):
    """Names of the libraries of others in a wheel, as their package has them, without and with the version."""
    with zipfile.ZipFile(wheel) as archive:
        found = filter(None, map(LIBRARY.fullmatch, archive.namelist()))
        return sorted((match[1], match[1] + match[2]) for match in found)


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def package(library, architecture):
    """Name and version of the Debian package of that architecture with the library."""
    names = {line.split(": ")[0] for line in output("dpkg", "-S", "*/" + library).splitlines()}
    (found,) = [name for name in names if name.endswith(":" + architecture)]
    return found.split(":")[0], output("dpkg-query", "-W", "-f", "${Version}", found)


def of_debian(name, library, architecture):
    package_name, version = package(library, architecture)
    purl = PackageURL("deb", "debian", package_name, version, {"arch": architecture})
    return Component(type=ComponentType.LIBRARY, name=package_name, version=version, purl=purl, bom_ref=str(purl),
                     licenses=[DisjunctiveLicense(id=LICENSES[name])])


def of_release(version, path, kind=ComponentType.FILE):
    digest = output("sha256sum", path).split()[0]
    return Component(type=kind, name=os.path.basename(path), version=version, bom_ref=os.path.basename(path),
                     licenses=[DisjunctiveLicense(id="Apache-2.0")],
                     hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)])


def bill(version, files):
    whole = Component(type=ComponentType.LIBRARY, name="qobs", version=version, bom_ref="qobs",
                      licenses=[DisjunctiveLicense(id="Apache-2.0")])
    bom, parts = Bom(), {}
    bom.metadata.component = whole
    for path in files:
        file = of_release(version, path)
        others = []
        for name, library in libraries(path) if path.endswith(".whl") else []:
            machine = next(m for m in ARCHITECTURES if path.endswith(f"_{m}.whl"))
            other = of_debian(name, library, ARCHITECTURES[machine])
            others.append(parts.setdefault(other.bom_ref.value, other))
        bom.components.update([file, *others])
        bom.register_dependency(file, others)
    bom.register_dependency(whole, [part for part in bom.components if part.type == ComponentType.FILE])
    return JsonV1Dot6(bom).output_as_string(indent=2)


def main():
    text = bill(sys.argv[1], sys.argv[2:])
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem:
        sys.exit(f"the bill is not as CycloneDX 1.6 wants it: {problem}")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
