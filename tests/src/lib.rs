//! Scenarios, faults, conformance, layering and benchmarks.
