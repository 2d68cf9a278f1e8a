"""Stages from outside: found, imported when they are named, checked, adapted, guarded."""
