//! The two traits at the metal, Fabric and HostSide, with their errors and named quirks.
