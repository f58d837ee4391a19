//! Racks that behave like real ones: over HTTPS as Redfish, and in process with a manual clock; with faults.
