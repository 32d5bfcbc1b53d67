"""Jobs: tasks that know of each other, and the collectives of their groups. The guide is docs/jobs.md."""

from __future__ import annotations

from phalanx._jobs.groups import Group, GroupCall, GroupProgress
from phalanx._jobs.members import Member, MemberInfo, Message, join

__all__ = ["Group", "GroupCall", "GroupProgress", "Member", "MemberInfo", "Message", "join"]
