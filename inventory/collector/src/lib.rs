//! Asks the drivers and assembles a snapshot with its faults.
