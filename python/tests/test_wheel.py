# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The installed wheel: licenses of the libraries that it brings."""
import importlib.metadata
import re

import pytest

# Library: file in packaging/licenses, and words of its license.
LICENSES = {
    "libsleef": ("sleef.txt", "Boost Software License - Version 1.0"),
    "libjson-c": ("json-c.txt", "MIT License"),
    "libpcre2-8": ("pcre2.txt", "Neither the name of the University of Cambridge"),
    "libyaml": ("libyaml.txt", "MIT License"),
}


@pytest.fixture
def files():
    try:
        found = importlib.metadata.distribution("libqobs").files
    except importlib.metadata.PackageNotFoundError:
        found = None
    return found or pytest.skip("libqobs is not installed from a wheel")


def license_text(files, name):
    found = [f for f in files if f.name == name and re.search(r"\.dist-info/licenses/", str(f))]
    assert len(found) == 1, f"no license {name} in the wheel"
    return found[0].read_text(encoding="utf-8")


def test_own_license(files):
    assert "Apache License" in license_text(files, "LICENSE")


def test_every_library_has_its_license(files):
    """A library that is new in the wheel fails here, until its license is in packaging/licenses."""
    bundled = [f.name for f in files if ".so" in f.name and not f.name.startswith("libqobs")]
    if not bundled:
        pytest.skip("the wheel has no libraries of others: auditwheel repair adds them")
    for name in bundled:
        library = [known for known in LICENSES if re.match(re.escape(known) + r"[-.]", name)]
        assert len(library) == 1, f"{name}: its license is not known"
        file, words = LICENSES[library[0]]
        text = license_text(files, file)
        assert words in text and "Copyright" in text and len(text) > 1000, file
