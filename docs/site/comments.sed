# Doxygen's input filter: turns the comments of the public headers into comments that Doxygen reads. The
# headers keep the plain comments of the house style.
1s,^// ,/// \\file\n/// ,
1s,^/\* ,/** \\file\n * ,
# Titles of groups of members.
s,^ *// ---- .*,,
s,^ */\* ---- .*,,
# Code in a comment is indented by three spaces; Markdown wants four behind the first.
s,^( *)//   +(.*),\1///     \2,
s,^( *)//( |$),\1/// ,
s,^( *)/\* ,\1/** ,
# A comment behind a member.
/^ *\/\/\//!s,([;\,]) +// ,\1  ///< ,
s,([;\,]) +/\* ,\1  /**< ,
# Doxygen 1.9.4 takes `local =` for a keyword of another language.
s,\blocal = ([a-z]+);,local{\1};,
