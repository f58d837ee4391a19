//! Runs a plan: journaled steps, read-back, undo, recovery.
