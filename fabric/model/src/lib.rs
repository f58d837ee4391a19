//! What is out there: ids, units, topology, GPU lifecycle, steps and hardware profiles, as plain values.
