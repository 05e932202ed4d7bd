"""Comparisons of methods: tasks, runs, scheduling, statistics, tables."""
