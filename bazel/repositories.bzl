"""What a workspace with Phalanx as an external repository calls in its WORKSPACE: phalanx_repositories()."""

def _folder_impl(ctx):
    for entry in ctx.path(ctx.attr.workspace).dirname.readdir():
        ctx.symlink(entry, entry.basename)

_folder = repository_rule(
    implementation = _folder_impl,
    doc = "A folder of this tree as a repository. A local_repository needs a path, which only its user knows.",
    attrs = {"workspace": attr.label(doc = "Its WORKSPACE file.", mandatory = True)},
    local = True,
)

def phalanx_repositories():
    """Declares those repositories of this tree's WORKSPACE that are not declared yet.

    Debian's Bazel 4.2.3 asks for all of them where only C++ is built.
    """
    if not native.existing_rule("rules_cc"):
        _folder(name = "rules_cc", workspace = Label("//third_party/rules_cc:WORKSPACE"))
    if not native.existing_rule("remote_coverage_tools"):
        _folder(
            name = "remote_coverage_tools",
            workspace = Label("//third_party/remote_coverage_tools:WORKSPACE"),
        )
    if not native.existing_rule("rules_java"):
        native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
