"""The rules of this tree. BUILD files load rules only from this file.

  phalanx_cc_library, phalanx_cc_binary, phalanx_cc_test    C++ with this tree's warnings
  phalanx_proto_library, phalanx_grpc_library               messages; the services of the same files
  phalanx_fuzz_test                                         a decoder under libFuzzer, or its corpus replayed
  phalanx_proto_root                                        their include path
  phalanx_system_library                                    a library from a Debian package
  phalanx_reaches                                           the dependencies of a library, as a file
  phalanx_archive                                           one archive of a library and its dependencies
  phalanx_py_library, phalanx_py_binary, phalanx_py_test    Python with the system's interpreter
  phalanx_precompiled_header                                common headers, parsed once
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")
load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

def _root():
    """Returns the folder of this tree where Bazel runs the compiler: "" or, as an external repository, "external/NAME/"."""
    name = native.repository_name()[1:]
    return "external/%s/" % name if name else ""

def _copts():
    """Returns the options of all C++ code.

    The public headers live in include/phalanx and are included as "phalanx/client.h". A workspace that has
    this tree as an external repository chooses its own warnings, and does not read this tree's .bazelrc.
    """
    flags = ["-std=c++20"] if _root() else ["-Wall", "-Wextra", "-Werror"]
    return flags + ["-iquote", _root() + "include"]

# libphalanx.so must not share a symbol with another library of a process. All code is compiled with this
# option, because a second build of the same code would have no other difference.
_CODE_COPTS = select({
    "//bazel:fuzz": [],
    "//conditions:default": ["-fno-gnu-unique"],
})

# The root of `import "phalanx/v1/x.proto"`.
_PROTO_ROOT = "protos"

# Test code is compiled more often than it runs, so it is optimized less.
_TEST_COPTS = ["-O1"]

# gcc 12 reports these false warnings in system code that it inlines from a precompiled header.
_PRECOMPILED_COPTS = [
    "-Wno-array-bounds",
    "-Wno-maybe-uninitialized",
    "-Wno-restrict",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
]

def _precompiled(name):
    """Returns the options and the dependency with which a target uses a phalanx_precompiled_header."""
    if _root():
        return struct(copts = _CODE_COPTS, deps = [])
    return struct(
        copts = select({
            "//bazel:no_precompiled_headers": [],
            "//conditions:default": _PRECOMPILED_COPTS + ["-include", "bazel/%s.h" % name],
        }) + _CODE_COPTS,
        deps = select({
            "//bazel:no_precompiled_headers": [],
            "//conditions:default": ["//bazel:" + name],
        }),
    )

def phalanx_cc_library(name, srcs = [], copts = [], deps = [], **kwargs):
    """A C++ library: one header, private unless visibility says otherwise."""
    precompiled = _precompiled("precompiled_for_libraries")
    cc_library(
        name = name,
        srcs = srcs,
        copts = _copts() + copts + precompiled.copts,
        linkstatic = True,
        deps = deps + precompiled.deps,
        **kwargs
    )

def phalanx_cc_binary(name, copts = [], deps = [], **kwargs):
    """A C++ executable."""
    precompiled = _precompiled("precompiled_for_libraries")
    cc_binary(
        name = name,
        copts = _copts() + copts + precompiled.copts,
        deps = deps + precompiled.deps,
        **kwargs
    )

def phalanx_cc_test(name, copts = [], deps = [], size = "small", gtest_main = True, **kwargs):
    """A GoogleTest test. With gtest_main = False the sources define main(); with None they do not use
    GoogleTest (and can be C)."""
    gtest = "//third_party:gtest_main" if gtest_main else "//third_party:gtest"
    if type(deps) == "list":
        deps = [dep for dep in deps if dep != gtest]
    copts = _copts() + copts
    if gtest_main != None:
        precompiled = _precompiled("precompiled_for_tests")
        copts = copts + _TEST_COPTS + precompiled.copts
        deps = deps + [gtest] + precompiled.deps
    cc_test(
        name = name,
        size = size,
        copts = copts,
        linkstatic = True,
        deps = deps,
        **kwargs
    )

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    fragment = ctx.fragments.cpp
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = ctx.file.header.path,
        output_file = compiled.path,
        use_pic = True,
        user_compile_flags = fragment.cxxopts + fragment.copts + ctx.attr.copts,
    )
    command = dict(feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME)
    arguments = ctx.actions.args()
    arguments.add_all(["-iquote", ".", "-x", "c++-header"])
    arguments.add_all(cc_common.get_memory_inefficient_command_line(variables = variables, **command))
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(**command),
        arguments = [arguments],
        env = cc_common.get_environment_variables(variables = variables, **command),
        inputs = depset([ctx.file.header] + ctx.files.includes, transitive = [toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "CppPrecompile",
    )

    # The compiler reads this only if it cannot use the precompiled header.
    ctx.actions.write(header, '#include "%s"\n' % ctx.file.header.path)
    headers = [header, compiled, ctx.file.header] + ctx.files.includes
    return [
        DefaultInfo(files = depset([compiled])),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(headers))),
    ]

phalanx_precompiled_header = rule(
    implementation = _precompiled_header_impl,
    doc = """Precompiles a header with gcc for all code that is compiled with the flags of this configuration.
Without it, half of the compile time is the parsing of the same headers. Targets of this file use it with
`-include bazel/<name>.h`. --define=phalanx_precompiled=0 turns it off, and so finds files that lack an
include.""",
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "includes": attr.label_list(allow_files = [".h"], doc = "What `header` includes of this tree."),
        "copts": attr.string_list(doc = "As those of the targets that use it."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def phalanx_system_library(name, libraries = [], linkopts = [], archives = False, **kwargs):
    """A system library, by its linker names; only libraries that are used are linked.

    Args:
      name: the target.
      libraries: names for -l.
      linkopts: other options of the linker.
      archives: the package also has archives, which are linked under --config=static.
      **kwargs: passed to cc_library.
    """
    as_needed = ["-Wl,--push-state,--as-needed"]
    as_needed += ["-l" + library for library in libraries]
    as_needed += ["-Wl,--pop-state"]
    whole = ["-Wl,--start-group"]
    whole += ["-l:lib%s.a" % library for library in libraries]
    whole += ["-Wl,--end-group"]
    if not libraries:
        links = []
    elif archives:
        links = select({
            "//bazel:static": whole,
            "//conditions:default": as_needed,
        })
    else:
        links = as_needed
    cc_library(name = name, linkopts = links + linkopts, **kwargs)

def phalanx_proto_library(name, srcs, deps = [], visibility = None, testonly = False):
    """Messages of protos/phalanx/v1 as a C++ library, included as "phalanx/v1/x.pb.h".

    Args:
      name: the C++ library. `<name>_srcs` is the closure of the .proto files.
      srcs: .proto files of this package.
      deps: other phalanx_proto_library targets whose files the srcs import.
      visibility: of the library.
      testonly: as everywhere.
    """
    native.filegroup(
        name = name + "_srcs",
        srcs = srcs + [dep + "_srcs" for dep in deps],
        visibility = visibility,
        testonly = testonly,
    )
    _protoc_library(
        name = name,
        srcs = srcs,
        inputs = [name + "_srcs"],
        extension = ".pb",
        flags = ["--cpp_out=$(BINDIR)/" + _root() + _PROTO_ROOT],
        deps = deps + ["//third_party:protobuf"],
        visibility = visibility,
        testonly = testonly,
    )

def phalanx_grpc_library(name, srcs, messages, visibility = None, testonly = False):
    """The services of .proto files, included as "phalanx/v1/x.grpc.pb.h". Depends on gRPC.

    Args:
      name: the C++ library.
      srcs: .proto files of this package.
      messages: the phalanx_proto_library of the same files.
      visibility: of the library.
      testonly: as everywhere.
    """
    _protoc_library(
        name = name,
        srcs = srcs,
        inputs = [messages + "_srcs"],
        extension = ".grpc.pb",
        flags = [
            "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin",
            "--grpc_out=$(BINDIR)/" + _root() + _PROTO_ROOT,
        ],
        deps = [messages, "//third_party:grpc"],
        visibility = visibility,
        testonly = testonly,
    )

def _protoc_library(name, srcs, inputs, extension, flags, deps, visibility, testonly):
    package = native.package_name()
    if package != _PROTO_ROOT and not package.startswith(_PROTO_ROOT + "/"):
        fail("%s belongs under //%s" % (name, _PROTO_ROOT))

    stems = [src[:-len(".proto")] for src in srcs]
    sources = [stem + extension + ".cc" for stem in stems]
    headers = [stem + extension + ".h" for stem in stems]
    command = ["/usr/bin/protoc --proto_path=" + _root() + _PROTO_ROOT] + flags
    native.genrule(
        name = name + "_generate",
        srcs = inputs,
        outs = sources + headers,
        cmd = " ".join(command + ["%s%s/%s" % (_root(), package, src) for src in srcs]),
        testonly = testonly,
        visibility = ["//visibility:private"],
    )
    precompiled = _precompiled("precompiled_for_libraries")
    cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = precompiled.copts,
        linkstatic = True,
        deps = deps + ["//%s:root" % _PROTO_ROOT] + precompiled.deps,
        testonly = testonly,
        visibility = visibility,
    )

def phalanx_proto_root(name, visibility):
    """The folder under which generated headers are found.

    `includes` makes them system headers, so that the warnings of the house do not reach them.
    """
    cc_library(name = name, includes = ["."], visibility = visibility)

def _unpacked_corpus_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = ["-m", "zipfile", "-e", ctx.file.archive.path, folder.path],
        inputs = [ctx.file.archive],
        outputs = [folder],
        mnemonic = "UnpackCorpus",
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles([folder]))]

_unpacked_corpus = rule(
    implementation = _unpacked_corpus_impl,
    doc = "The inputs of a fuzz target's archive, one file each, in a folder named as this target.",
    attrs = {"archive": attr.label(allow_single_file = [".zip"], mandatory = True)},
)

def phalanx_fuzz_test(name, srcs, corpus, deps = [], tags = [], size = "small", copts = [], **kwargs):
    """A test of a decoder, written as LLVMFuzzerTestOneInput.

    Under --config=fuzz this is a libFuzzer executable; otherwise an ordinary test that feeds every
    input of the corpus to it once, and fails if there is none. The corpus is unpacked into a folder
    that is named as the archive without its extension, and is a target of that name.

    Args:
      name: the target.
      srcs: sources that define LLVMFuzzerTestOneInput.
      corpus: a zip archive of this package with one input per entry (scripts/corpus_add.py).
      deps: as in cc_test.
      tags: "decoder" is added; the sanitizer run selects these tests by it.
      size: as in cc_test.
      copts: as in cc_test.
      **kwargs: passed to cc_test.
    """
    precompiled = _precompiled("precompiled_for_libraries")
    folder = corpus[:-len(".zip")]
    _unpacked_corpus(
        name = folder,
        archive = corpus,
        testonly = True,
        visibility = ["//visibility:public"],
    )
    cc_test(
        name = name,
        size = size,
        srcs = srcs,
        args = ["$(rootpath :%s)" % folder],
        copts = _copts() + copts + precompiled.copts,
        data = [":" + folder],
        linkopts = select({
            "//bazel:fuzz": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        linkstatic = True,
        deps = deps + precompiled.deps + select({
            "//bazel:fuzz": [],
            "//conditions:default": ["//bazel:fuzz_replay_main"],
        }),
        tags = tags + ["decoder", "fuzz"],
        **kwargs
    )

def phalanx_py_library(name, **kwargs):
    """A Python library."""
    native.py_library(name = name, srcs_version = "PY3", **kwargs)

def phalanx_py_binary(name, **kwargs):
    """A Python program."""
    native.py_binary(name = name, python_version = "PY3", srcs_version = "PY3", **kwargs)

def phalanx_py_test(name, size = "small", **kwargs):
    """A Python test (unittest)."""
    native.py_test(name = name, size = size, python_version = "PY3", srcs_version = "PY3", **kwargs)

def phalanx_reaches(name, targets, what):
    """A file `name` that lists the direct and indirect dependencies of each target that match `what`.

    Args:
      name: the file: one line "TARGET" per target, then one indented line per dependency found.
      targets: labels of libraries.
      what: a regular expression over labels.
    """
    for index, target in enumerate(targets):
        native.genquery(
            name = "%s_%d" % (name, index),
            expression = "filter('%s', deps(%s))" % (what, target),
            opts = ["--output=label"],
            scope = [target],
        )
    native.genrule(
        name = name,
        srcs = [":%s_%d" % (name, index) for index in range(len(targets))],
        outs = [name + ".txt"],
        cmd = "; ".join([
            "echo '%s' >> $@; sed 's/^/  /' $(location :%s_%d) >> $@" % (target, name, index)
            for index, target in enumerate(targets)
        ]),
    )

def _archive_impl(ctx):
    objects = []
    for linked in ctx.attr.of[CcInfo].linking_context.linker_inputs.to_list():
        for library in linked.libraries:
            objects += library.pic_objects or library.objects
    archive = ctx.actions.declare_file(ctx.label.name)
    arguments = ctx.actions.args()

    # q: objects of two folders can have one name. D: no times, no owners.
    arguments.add("qcsD", archive)
    arguments.add_all(objects)
    ctx.actions.run(
        executable = find_cpp_toolchain(ctx).ar_executable,
        arguments = [arguments],
        inputs = objects,
        outputs = [archive],
        mnemonic = "CppWholeArchive",
    )
    return [DefaultInfo(files = depset([archive]), runfiles = ctx.runfiles([archive]))]

phalanx_archive = rule(
    implementation = _archive_impl,
    doc = "An archive of the objects of a library and of all libraries of this tree that it depends on.",
    attrs = {
        "of": attr.label(providers = [CcInfo], mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def phalanx_python_toolchain(name, interpreter):
    """The interpreter that the rules above use."""
    native.py_runtime(
        name = name + "_runtime",
        interpreter_path = interpreter,
        python_version = "PY3",
        stub_shebang = "#!" + interpreter,
    )
    py_runtime_pair(
        name = name + "_pair",
        py3_runtime = name + "_runtime",
    )
    native.toolchain(
        name = name,
        toolchain = name + "_pair",
        toolchain_type = "@bazel_tools//tools/python:toolchain_type",
    )
