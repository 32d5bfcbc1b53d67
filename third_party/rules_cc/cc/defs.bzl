"""Stands in for the rules_cc module where Bazel still has native C++ rules (4.2.3 on Debian)."""

cc_library = native.cc_library
cc_binary = native.cc_binary
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
