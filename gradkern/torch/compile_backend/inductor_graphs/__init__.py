"""Stages 2 and 3: passes over Inductor's graphs, of both passes and of one."""
