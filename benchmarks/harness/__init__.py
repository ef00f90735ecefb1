"""What the benchmarks have in common: processes to measure, requests, statistics, tables."""
